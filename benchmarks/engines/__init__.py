"""Search engines, this project's and its peers, with one protocol, built and searched in separate processes; see ``kinds``."""
