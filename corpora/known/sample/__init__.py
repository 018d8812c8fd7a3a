"""The sample corpus that ships with idx, and its questions.

corpus  reads ``passages.jsonl`` and ``questions.jsonl``
"""

from .corpus import CORPUS, SampleQuestion, passages, questions

__all__ = ["CORPUS", "SampleQuestion", "passages", "questions"]
