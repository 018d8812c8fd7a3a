"""Search of an existing Lucene index by the user's Pyserini and Java.

index    LuceneIndex and open_lucene()
library  the only module that loads Pyserini
"""
