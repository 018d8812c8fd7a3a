"""Files of a corpus, from the network or a local copy.

download  resumable, verified    sources  locations of the files
"""
