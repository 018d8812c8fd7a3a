"""Reading of dump files: from compressed bytes to passages with file and line.

readers    one streaming reader for each format   compression  plain, gzip, bzip2 and zstd files
splitters  article -> passages, by named rules    records      passages of JSON records
"""
