"""Text -> terms, token for token as Lucene's English analysis makes them (Anserini's DefaultEnglishAnalyzer), without Java.

grammar      what a word is, by classes of characters    characters   the class and the lower case of each code point
automaton    the grammar as tables                       tokens       text -> words, as StandardTokenizer finds them
terms        word -> term: possessive, case, stop words  porter       the stemmer
numbering    texts -> term numbers, in one kernel        analyzer     the front of it: english() and TermNumbers
utf          UTF-16 and UTF-8
"""

from wikidx.indexer.analysis.analyzer import TermNumbers, TermTable, english, word_spans

__all__ = ["ANALYZER", "TermNumbers", "TermTable", "english", "word_spans"]

ANALYZER = "lucene-english"  # the name that an index keeps of how its texts were analysed
