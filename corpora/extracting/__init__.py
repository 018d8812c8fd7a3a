"""Extractors of documents, each a function ``read(path)`` that yields documents with text, title, pages and headings.

building  text made of blocks            plain         text files                   markdown  Markdown, by markdown-it
html      HTML, by lxml                  restructured  reStructuredText, by docutils  pdf     PDF, by PDFium
docx      DOCX, by its XML               epub          EPUB, by its XML and html      members  members of zip archives, within limits
"""
