"""Metrics computed by a model; the result names the model.

row_metrics  the type and result of such a metric  citations  ALCE's citation recall and precision
nli        entailment of one text by another      judge      correctness of an answer, by an LLM's votes
sentence_splitting  splitting of long answers into statements
"""
