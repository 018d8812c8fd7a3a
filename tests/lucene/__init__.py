"""Lucene 9 by the class names of Anserini's jar, which Pyserini installs: the oracle of BM25 and of the analysis.

jvm     Java in this process and in others     oracle  build and search of an index
"""
