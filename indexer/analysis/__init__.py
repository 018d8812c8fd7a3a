"""Text analysis: the contract of an analyzer, and English without Java.

The terms of English equal those of Lucene as Anserini uses it (DefaultEnglishAnalyzer).

analyzer     Analyzer: texts -> terms; plug-ins, and their numbering in Python
english      English: english(), word_spans(), TermNumbers
characters   class and lower case of each code point     automaton    a pattern as tables
tokens       text -> words, equal to StandardTokenizer's
terms        word -> term: possessive, case, stop words  porter       stemmer
numbering    texts -> term numbers, in one kernel        dictionary   numbered distinct terms, as a hash table
languages    language or script of texts that are not English
"""

from wikidx.indexer.analysis.analyzer import ANALYZERS, ENGLISH, Analyzer, TermNumbering, TermTable, analyzer_parameters, recorded_analyzer

__all__ = ["ANALYZERS", "ENGLISH", "Analyzer", "TermNumbering", "TermTable", "analyzer_parameters", "recorded_analyzer"]
