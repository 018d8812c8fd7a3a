"""FAISS indexes over an encoder's vectors.

ivf  hnsw         the kinds, and their builds
cpu  gpu          opening of an index               row_range  index of a range of rows
inverted_lists    lists as files during a build     library    the only import of FAISS
"""
