"""Comparison of two commits: workload runs in each checkout, __main__ alternates between them and compares."""
