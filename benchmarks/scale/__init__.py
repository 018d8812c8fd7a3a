"""Growth of all costs with the corpus, from three sizes up to five million passages: see ``__main__``."""
