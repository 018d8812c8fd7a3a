"""Exact search straight over an encoder's vectors.

index      ExactIndex, and opening one     placement  devices that hold the vectors
cpu        search by threads               products   the inner loop
gpu        search by torch                 gpu_best   its k best
best_keys  the k best as integers, on any device
"""
