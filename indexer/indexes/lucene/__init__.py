"""Lucene itself, through Pyserini's jar.

index   LuceneIndex, and its opening    build   indexing by Anserini's commands
reader  Lucene's reader                 jvm     Java in this process    java_functions  loops inside it
"""
