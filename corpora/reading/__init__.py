"""Reading of dump files: from compressed bytes to passages with file and line.

readers    formats, and detection of them         compression  plain, gzip, bzip2 and zstd files
containers bytes -> records, by kinds of file     records      record -> passage, by a map of its fields
document   text, pages, headings of a document    splitters    document -> passages, by named rules
sentences  sentences of a text
"""
