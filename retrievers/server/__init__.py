"""Search server over HTTP; ``retrievers.client`` is its client. Local search imports nothing from this package.

settings    corpora, retrievers and address of a server      limits          limits on a request and on the queue
workers     several processes on one port                    running         one process: socket, signals, graceful shutdown
front       checks, log and counts of all requests           pages           FastAPI's application: all paths
bodies      decompression of requests, compression of answers
searching   the paths /v1/search and /retrieve               models          schemas of request and response bodies
catalog     all corpora and retrievers of a server           open_searchers  open stores, retrievers and searchers
answering   answers by a language model, as runtimes adds them
embedding   the paths /v1/embeddings and /v1/models
batcher     a thread that searches in batches                metrics         counts and times, summed over the processes
api_key     check of the API key                             host_check      check of the headers Host and Origin
protocol    refusal of malformed HTTP                        access_log      one line for each request
page/       the search page at /
page_headers  what browsers may do with an answer
"""
