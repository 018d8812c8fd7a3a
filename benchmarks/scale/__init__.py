"""How does everything grow with the corpus, from three sizes up to five million passages: see ``__main__``."""
