"""English text analysis without Java; its terms equal those of Lucene as Anserini uses it (DefaultEnglishAnalyzer).

characters   class and lower case of each code point     automaton    a pattern as tables
tokens       text -> words, equal to StandardTokenizer's
terms        word -> term: possessive, case, stop words  porter       stemmer
numbering    texts -> term numbers, in one kernel        dictionary   numbered distinct terms, as a hash table
analyzer     public interface: english(), word_spans(), TermNumbers
"""

from wikidx.indexer.analysis.analyzer import TermNumbers, TermTable, english, word_spans

__all__ = ["ANALYZER", "TermNumbers", "TermTable", "english", "word_spans"]

ANALYZER = "lucene-english"  # the analyzer's name in an index's manifest
