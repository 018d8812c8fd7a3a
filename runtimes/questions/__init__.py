"""Questions and question files.

base            Question: the text that a method sees, the gold data, and the passages given with it
reading         read_questions: questions of a file; find_questions: questions of a file, a fetched set or the sample corpus
formats         table of the file formats
own_formats     formats of plug-ins
open_domain     parsers for NQ, TriviaQA, PopQA, SQuAD, BEIR, DPR, FlashRAG, FiD
multi_hop       parsers for HotpotQA, 2WikiMultihopQA, MuSiQue, StrategyQA
claims          parser for FEVER
long_form       parsers for ASQA, ALCE, HalluQA, BEGIN
given_passages  parser for the passages that records give with questions
kilt            parser for KILT's tasks, such as Wizard of Wikipedia
queries         read_queries: queries of any file of questions, or of lines of text
records         reading of a file's records
topics          parsing of TREC's topics
fields          typed access to a record's fields
beir            questions and qrels of a folder of BEIR
sampling        select: questions of a paper's protocol, or a random sample
protocols       table of the papers' protocols
sets            table of the published sets
fetching        download and conversion of a published set
"""

from __future__ import annotations

from .base import FEVER_LABELS, GivenPassage, Question, gold
from .formats import FORMATS, Format
from .own_formats import QuestionFormat
from .protocols import PROTOCOLS, Protocol
from .reading import SAMPLE, detect_format, find_questions, has_questions, question_file, read_questions, sample_questions
from .sampling import Selection, sample, select
from .sets import PublishedSet, converted_path, find_set, published_sets

__all__ = [
    "FEVER_LABELS",
    "FORMATS",
    "PROTOCOLS",
    "SAMPLE",
    "Format",
    "GivenPassage",
    "Protocol",
    "Question",
    "QuestionFormat",
    "PublishedSet",
    "Selection",
    "converted_path",
    "detect_format",
    "find_questions",
    "find_set",
    "gold",
    "has_questions",
    "published_sets",
    "question_file",
    "read_questions",
    "sample",
    "sample_questions",
    "select",
]
