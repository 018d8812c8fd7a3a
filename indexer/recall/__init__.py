"""Recall of approximate indexes against exact search.

measuring  one index at several settings    report  all indexes of a corpus    plot  recall against speed
"""
