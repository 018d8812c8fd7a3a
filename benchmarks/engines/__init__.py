"""Search engines, this project's and its peers, with one protocol, built and searched in separate processes; see ``__main__``.

kinds           the protocol, and the table of engines
own             this project's indexes, and its whole call
anserini, bm25s_package, pisa_package, sqlite_fts, tantivy_package    lexical peers
dense_packages  FAISS, sentence-transformers, hnswlib, USearch
embedded, terms vectors and terms that all peers are given
corpus          passages and questions
worker          the processes
rounds, quality, measuring    speed, agreement, and the tables of both
"""
