"""Speed of the server, and its behaviour under load: see ``__main__``."""
