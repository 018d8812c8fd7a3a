"""The machine: its memory, threads, processes and devices, and code compiled for it.

memory   bytes available to a process       workers   work done ahead, in processes
threads  how many, and ranges for them      compiled  ``kernel``: compiled inner loops and their cache
devices  their names, and their memory      failures  errors of devices, in words for a user
"""
