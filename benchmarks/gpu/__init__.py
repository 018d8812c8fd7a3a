"""The call for groups of queries, and the server, over exact search on a GPU."""
