"""Searching indexes that no single machine holds: each is cut into ranges of rows, which processes on a Ray cluster hold.

``merging`` puts together what the ranges found, ``sharded`` is an index made of them, ``shard`` what one process holds, ``replicas`` asks
processes and goes round those that are lost, ``placing`` says on which nodes they are, ``looking`` how they are, and ``service`` starts
them and exchanges them for new ones. Nothing is imported from Ray before it is used.
"""
