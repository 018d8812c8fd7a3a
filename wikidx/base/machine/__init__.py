"""Memory, threads, processes and devices of the machine.

memory   memory available to a process      workers   look-ahead and worker processes
threads  number of threads, equal ranges    chunks    comparisons of 64 numbers at a time
devices  device names and free memory       fit       vectors and networks on GPUs, by the memory that they need
failures messages to the user for device errors
"""
