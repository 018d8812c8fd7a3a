"""Metrics of one answer to its question; ``metrics`` is the table of all.

metric       the type of a metric                  token_overlap, alce_text  shared by several evaluators
squad  dpr  triviaqa  popqa  selfrag  flashrag     short answers        hotpotqa  twowiki  multi-hop
strategyqa  fever                                  yes/no and labels    asqa  kilt  rouge  long answers
"""
