"""Searching indexes that no single machine holds: each is cut into ranges of rows, which processes on a Ray cluster hold.

sharded   an index made of ranges               merging  what the ranges found -> what the whole would have found
shard     what one process holds                placing  on which nodes processes are
replicas  the processes that hold a shard       health   how they are, asked again and again
service   starts them, and exchanges them       serving  ``idx serve --ray``

Nothing is imported from Ray before it is used.
"""
