"""Search server over HTTP; ``retrievers.client`` is its client. Local search imports nothing from here.

settings   corpora, retrievers and address of a server        limits   limits on one request and on the queue
workers    several processes on one port                      running  one process: socket, signals, graceful shutdown
front      key, refusals, log and counts of every request     pages    FastAPI's application: all paths
searching  /v1/search and /retrieve                           models   schemas of their bodies
catalog    everything served, with its state                  open_searchers  open stores, retrievers and searchers
batcher    a thread that searches in batches                  metrics  counts and times, summed over the processes
api_key    check of the API key                               access_log  one line per request
host_check  refusal of foreign Host and Origin headers by a server without a key
protocol   refusal of malformed HTTP
page/      the search page at /                               documentation  the page at /docs
"""
