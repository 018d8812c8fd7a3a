"""Reading of dump files: from compressed bytes to passages with file and line.

readers    formats, and detection of them         compression  plain, gzip, bzip2 and zstd files
containers bytes -> records, by kinds of file     records      record -> passage, by a map of its fields
tables     the same of CSV, Parquet, Arrow, JSON  fields       choice of the fields by well-known names
document   text, pages, headings of a document    splitters    document -> passages, by named rules
sentences  sentences of a text                    json_text    incremental parsing of JSON
"""
