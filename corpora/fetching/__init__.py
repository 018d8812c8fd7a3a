"""Files of a corpus, from the network or a local copy.

download  resumable, verified    sources  local or downloaded files
"""
