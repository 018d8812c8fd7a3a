"""This project beside its peers, in one run; see ``__main__``."""
