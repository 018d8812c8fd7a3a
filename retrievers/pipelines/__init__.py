"""Pipelines: retrievers, fusions and rerankers, in one line of text, wherever a retriever's name stands.

notation   "{bm25, minilm}rrf%50 >> simlm" -> a tree           tree     Source, Fused and Reranked, the nodes of a pipeline
running    runs a tree over the lists of its sources           saved    named pipelines of a corpus, in TOML files
remote     retrievers on idx, RoutIR and Search-R1 servers
"""
