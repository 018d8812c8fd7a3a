"""Parts of the machine that every layer needs.

compiled  ``kernel``: compiled inner loops and their cache
"""
