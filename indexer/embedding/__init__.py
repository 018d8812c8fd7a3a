"""Embedding of passages: passages -> vectors.

embed     entry: one device, several, or a cluster  pipeline  steps on one device
options   devices, precision, batch size            timing    speed and memory on a sample
cluster/  embedding on a Ray cluster
served    embedding by a server
"""
