"""Index kinds; each has a line in a table of ``indexer/__init__.py``, and all have the contract in ``kinds``.

bm25/        BM25 that equals Lucene, without Lucene        selection    its k best
lucene       Lucene itself                                  lucene_build, lucene_import, lucene_reader  made, adopted, asked

exact        search straight over an encoder's vectors      exact_cpu    on processors: products, the inner loop
best_keys    the k best as integers, on any device          exact_torch  on GPUs: torch_best

faiss_flat  faiss_ivf  faiss_hnsw   the kinds that FAISS has: how each is written
faiss_cpu  faiss_gpu  faiss_range   how they are opened: mapped, copied to GPUs, some rows of them
faiss_index     what all share once they are open           faiss_lists     how the mapped lists of ``ivf`` are searched
inverted_lists  these lists as files, while they are made
faiss_library   FAISS itself, imported there only
"""
