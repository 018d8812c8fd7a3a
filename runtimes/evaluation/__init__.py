"""Scores of retrieval and answers, each named by its origin.

has_answer   DPR's test whether a passage holds an answer
"""
