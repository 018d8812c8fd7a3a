"""A corpus of the size of the DPR Wikipedia, 21,015,324 passages, built whole and measured: see ``__main__``.

building    ``idx build`` watched, interrupted and limited in its memory
asking      opening, questions, groups of queries, the server
groups      the process that asks groups of queries
"""
