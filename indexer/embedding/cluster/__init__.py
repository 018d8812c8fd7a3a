"""Embedding on a Ray cluster: passages go to encoders on its nodes, and vectors come back.

nodes      connecting, and whether the nodes can do the work     embedding  a job from its checks to its end
encoder    what runs on the nodes
"""
