"""Lucene itself, from Anserini's jar, which Pyserini installs.

index   LuceneIndex and open_lucene()   build   indexing by Anserini's program
reader  Lucene's reader                 jvm     Java processes          java_functions  loops that run inside Java
"""
