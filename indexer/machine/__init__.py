"""Memory, threads, processes and devices of the machine, and compiled inner loops.

memory   memory available to a process      workers   look-ahead and worker processes
threads  number of threads, equal ranges    compiled  ``kernel``: compiled inner loops and their cache
devices  device names and free memory       failures  messages to the user for device errors
"""
