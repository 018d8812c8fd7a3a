"""Speed of the server, and its behaviour under load; see ``__main__``.

load        the process that sends requests
hosts       servers to compare with
processes   servers and load as child processes
soak, mixed growth of a server's memory under a mixed load
"""
