"""Recall of approximate indexes against exact search.

measuring  of one index, at several settings    report  of all indexes of a corpus    plot  drawn
"""
