"""Exact search directly over an encoder's vectors.

index      ExactIndex and open_exact()     memory     of a search, and its devices
cpu        search by threads
gpu        search by torch                 gpu_best   top-k that does not wait for the host
gpu_select a kernel of Triton for it       collecting candidates for the k best, by thread
"""
