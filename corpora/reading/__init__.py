"""Dump files -> located passages.

readers    one streaming reader a format     compression  plain, gzip, bzip2 and zstd files
splitters  article -> passages, by named rules
"""
