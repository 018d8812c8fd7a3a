"""Embedding on a Ray cluster: the shards of a corpus as work for encoders on its nodes.

The bytes are those of one machine of the same kind whose torch has as many threads as each encoder has processors.

nodes      connecting, and whether the nodes can do the work     embedding  a job from its checks to its end
worker     what runs on the nodes, and who makes which shard     watch      encoders started, watched and replaced
places     where nodes read passages and put shards              exchange   files handed over by way of an object store
"""
