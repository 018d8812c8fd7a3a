"""Searching vectors that no single machine holds: each index is cut into ranges of rows, which processes on a Ray cluster hold.

sharded   an index made of ranges               shard     what one process holds
replicas  the processes that hold a shard       placing   on which nodes processes are
service   ``idx serve --ray``: starts them, and exchanges them

Nothing is imported from Ray before it is used.
"""
