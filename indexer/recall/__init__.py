"""Recall of approximate indexes against exact search.

measuring  recall and speed of an index    report  reports of a corpus's indexes    plot  recall against speed
"""
