"""Passages -> vectors.

embed     on one device, several, or a cluster    pipeline  one device's share of it
options   devices, precision, batch size          batching  texts that are encoded together
cluster/  the same on a Ray cluster
"""
