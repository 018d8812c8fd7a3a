"""Dump files -> located passages.

readers    one reader a format, streaming    compression  plain, gzip, bzip2, zstd alike
splitters  article -> passages, by named rules
"""
