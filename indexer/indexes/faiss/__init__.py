"""FAISS indexes over an encoder's vectors.

flat  ivf  hnsw   the kinds, and their writing      index      search shared by all kinds
cpu  gpu          opening an index                  row_range  an index of some rows
inverted_lists    lists as files during a build     library    the only import of FAISS
"""
