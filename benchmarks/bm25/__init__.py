"""BM25 by this project, by Pyserini and by bm25s, side by side; see ``__main__``."""
