"""Search over vectors that no single machine can hold: each index is cut into ranges of rows, held by processes on a Ray cluster.

sharded   an index made of ranges               shard     the process that holds a shard
replicas  the processes that hold a shard       placing   assignment of processes to nodes
service   ``idx serve --ray``: starts and replaces them

Nothing is imported from Ray before it is used.
"""
