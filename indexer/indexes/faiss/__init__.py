"""FAISS indexes over an encoder's vectors.

flat  ivf  hnsw   the kinds: how each is written    index      what all share once open
cpu  gpu          how they are opened               row_range  some rows of them
inverted_lists    lists as files, while they are made   library    FAISS itself, imported there only
"""
