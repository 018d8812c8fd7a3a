"""Lucene's English analysis (Anserini's DefaultEnglishAnalyzer) of texts, token for token, without Java.

grammar      words as patterns of character classes      characters   class and lower case of each code point
automaton    the grammar as tables                       tokens       text -> words, equal to StandardTokenizer's
terms        word -> term: possessive, case, stop words  porter       the stemmer
numbering    texts -> term numbers, in one kernel        analyzer     public functions: english() and TermNumbers
utf          UTF-16 and UTF-8
"""

from wikidx.indexer.analysis.analyzer import TermNumbers, TermTable, english, word_spans

__all__ = ["ANALYZER", "TermNumbers", "TermTable", "english", "word_spans"]

ANALYZER = "lucene-english"  # the analyzer's name in an index
