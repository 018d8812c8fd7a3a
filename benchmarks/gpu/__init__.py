"""Speed on a GPU; with ``--device cpu`` each program runs on the CPU too.

``python -m benchmarks.gpu``  groups of queries in one call, and ``idx serve``
search    exact search over random vectors, beside the card's bandwidth and rate of products
networks  embedding of passages, encoding of queries, reranking
made      checkpoints with random weights, and made texts
"""
