"""Search engines, this project's and its peers, behind one protocol, built and searched in processes of their own; see ``kinds``."""
