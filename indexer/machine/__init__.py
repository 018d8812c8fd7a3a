"""Memory, threads, processes and devices of the machine, instructions on vectors, and HTTP connections.

memory   memory available to a process      workers   look-ahead and worker processes
threads  number of threads, equal ranges    chunks    comparisons of 64 numbers at a time
devices  device names and free memory       placement vectors and networks on GPUs, by the memory that they need
failures  messages to the user for device errors
endpoint requests to a model's HTTP endpoint, with retries
cards    figures of types of GPU             timed_http  HTTP connections with a time limit on the whole answer
request_threads  threads that wait for servers, and are waited for by nobody
"""
