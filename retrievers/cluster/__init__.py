"""Search over vectors that no single machine can hold: processes on a Ray cluster hold ranges of each index's rows.

sharded   an index made of ranges               shard     a process that holds a shard
replicas  all processes that hold a shard       placement   assignment of processes to nodes
service   ``idx serve --ray``: starts and replaces the processes

Ray is imported on first use.
"""
