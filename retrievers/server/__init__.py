"""Search over HTTP. The search code imports nothing from here; ``retrievers.client`` is the client.

settings   corpora, retrievers and address of a server        limits   bounds on a request, and on all waiting ones
workers    several processes on one port                      running  one process: socket, signals, graceful shutdown
front      every request: key, refusals, log, counts          pages    FastAPI's application: all paths
searching  /v1/search and /retrieve                           models   schemas of their bodies
catalog    everything served, with its state                  opened   open stores, retrievers and searchers
batcher    a thread that searches for all waiting requests    metrics  counts and times, summed over the processes
api_key    check of the API key                               access_log  a line a request
local_names  the names under which a server without a key may be reached
page/      the search page at /                               documentation  the page at /docs
"""
