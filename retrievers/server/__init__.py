"""Searches over HTTP. Nothing here is imported by what searches; ``retrievers.client`` speaks to it.

settings   what is served, and where                          limits   how much a request, and all that wait, may ask for
workers    several processes on one port                      running  one process: socket, signals, an end that loses no request
front      every request: key, refusals, log, counts          pages    FastAPI's application: all paths
searching  /v1/search and /retrieve                           models   what their bodies may hold
catalog    what is served: opened behind the port, its state  opened   stores, retrievers and searchers that are open
batcher    a thread that searches for all who wait            metrics  counts and times, added up over the processes
api_key    what requests must bring                           access_log  a line a request
page/      the search page at /                               documentation  the page at /docs
"""
