"""Exact search directly over an encoder's vectors.

index      ExactIndex, and its opening     placement  devices that hold the vectors
cpu        search by threads               products   the inner loop
gpu        search by torch                 gpu_best   top-k by torch
best_keys  the k best as integers, on any device
"""
