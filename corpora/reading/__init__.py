"""Reading of dump files as located passages.

readers    one streaming reader per format   compression  plain, gzip, bzip2 and zstd files
splitters  article -> passages, by named rules
"""
