"""Metrics computed by a model; reports name the model.

row_metrics         the type of these metrics, and their values
citations           ALCE's citation recall and precision
nli                 natural language inference models
sentence_splitting  sentence splitters
judge               LLM judges
"""
