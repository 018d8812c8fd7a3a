"""Embeddings and indexes published by third parties.

importing    import of vectors, matched to rows       addresses  download addresses
formats      readers of published formats             pickles    unpickling without running code
arrays       readers of files of arrays               lucene     import of a Lucene index
faiss_files  FAISS indexes that hold their vectors
"""
