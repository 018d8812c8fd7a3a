"""Embedding of passages: passages -> vectors.

embed     entry: devices, a cluster or a server     pipeline  steps on one device
options   devices, precision, batch size            cluster   embedding on a Ray cluster
"""
