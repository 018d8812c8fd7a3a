"""FAISS indexes over an encoder's vectors.

flat  ivf  hnsw   the kinds: writing each           index      search shared by all
cpu  gpu          opening them                      row_range  an index of some rows
inverted_lists    lists as files during a build     library    FAISS itself, imported only there
"""
