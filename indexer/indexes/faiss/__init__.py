"""FAISS indexes over an encoder's vectors.

ivf  hnsw         the kinds, and their builds
cpu  gpu          opening of an index, or of a range of its rows
inverted_lists    lists as files during a build     library    the only import of FAISS
"""
