"""Lucene itself, from Anserini's jar, which Pyserini installs.

index   LuceneIndex and open_lucene()   build   indexing by Anserini's program
reader  Lucene's reader                 jvm     Java in this process and others, and loops inside it
"""
