"""Index kinds, one a file, and ``selection``: the k best of many scores."""
