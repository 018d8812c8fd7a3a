"""Search engines, this project's and its peers, each behind the same protocol, built and asked in processes of their own; see ``kinds``."""
