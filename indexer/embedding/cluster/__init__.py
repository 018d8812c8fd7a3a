"""Embedding on a Ray cluster: passages go to encoders on its nodes, and vectors come back.

nodes      connection, and checks of the nodes                   embedding  a job and its checks
encoder    the actor on the nodes
"""
