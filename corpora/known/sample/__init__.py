"""The corpus that ships with idx, and questions on it.

corpus  the passages and questions in ``passages.jsonl`` and ``questions.jsonl``
"""

from .corpus import CORPUS, SampleQuestion, passages, questions

__all__ = ["CORPUS", "SampleQuestion", "passages", "questions"]
