"""Vector search on a Ray cluster: each shard, a process with replicas, holds a range of rows of every vector index.

sharded   a vector index over all shards        shard       the process of a shard
replicas  the replicas of a shard               placement   assignment of processes to nodes
service   ``idx serve --ray``: starts and replaces the processes    identity  of an index on all machines

Ray is imported on first use.
"""
