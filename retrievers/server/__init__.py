"""Search server over HTTP; ``retrievers.client`` is its client. Local search imports nothing from this package.

settings    corpora, retrievers and address of a server      limits          limits on a request and on the queue
workers     several processes on one port                    running         one process: socket, signals, graceful shutdown
protocol    heads of requests, and refusal of malformed HTTP
gate        keys, hosts, counts and log of all requests      routes          all paths
schemas     bodies of requests and responses                 openapi         their description, /openapi.json
bodies      decompression of requests, compression of answers
searching   the paths /v1/search and /retrieve               openai_embeddings  the paths /v1/embeddings and /v1/models
answerer    interface for answers by a language model        access_log      one line for each request
catalog     all corpora and retrievers of a server           open_searchers  open stores, retrievers and searchers
batcher     a thread that searches in batches                metrics         counts and times, summed over the processes
page/       the search page at /
"""
