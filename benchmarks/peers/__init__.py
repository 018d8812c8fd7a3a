"""This project compared with its peers, in one run; see ``__main__``."""
