"""Vector search on a Ray cluster: each shard, a process with replicas, holds a range of rows of every vector index.

shard    the process of a shard                service  ``idx serve --ray``: starts, checks and replaces the processes
sharded  a vector index over all shards

Ray is imported on first use.
"""
