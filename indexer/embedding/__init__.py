"""Passages -> vectors.

embed     on one device, several, or a cluster    pipeline  steps on one device
options   devices, precision, batch size          batching  texts that are encoded together
cluster/  the same on a Ray cluster
"""
