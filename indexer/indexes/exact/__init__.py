"""Exact search directly over an encoder's vectors.

index      ExactIndex and open_exact()     memory     of a search, and its devices
cpu        search by threads
gpu        search by torch                 gpu_best   top-k by torch
gpu_stream top-k that does not wait for the host, with the kernel of Triton in gpu_select
collecting candidates for the k best, by thread
"""
