"""Vector search on a Ray cluster: each shard, a process with replicas, holds a range of rows of every vector index.

sharded   a vector index over all shards        shard     the process of a shard
replicas  calls that survive lost replicas      service   ``idx serve --ray``: starts and replaces the processes

Ray is imported on first use.
"""
