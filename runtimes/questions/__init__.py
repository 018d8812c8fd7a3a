"""Questions and question files.

base             Question: the text that a method sees, and the gold data
reading          read_questions: a file in any format -> its questions; find_questions: the same, or the sample's
formats          the table of formats
open_domain      NQ, TriviaQA, PopQA, FlashRAG, FiD          multi_hop    HotpotQA, 2WikiMultihopQA, StrategyQA
claims           FEVER                                       long_form    ASQA, ALCE, HalluQA, BEGIN
kilt             KILT's tasks, Wizard of Wikipedia
records, json_text, fields    files -> records -> typed fields
sampling         select: a paper's protocol, a random sample
protocols        the table of the papers' protocols
"""

from __future__ import annotations

from .base import FEVER_LABELS, Question
from .formats import FORMATS, Format
from .protocols import PROTOCOLS, Protocol
from .reading import SAMPLE, detect_format, find_questions, read_questions, sample_questions
from .sampling import Selection, sample, select

__all__ = [
    "FEVER_LABELS",
    "FORMATS",
    "PROTOCOLS",
    "SAMPLE",
    "Format",
    "Protocol",
    "Question",
    "Selection",
    "detect_format",
    "find_questions",
    "read_questions",
    "sample",
    "sample_questions",
    "select",
]
