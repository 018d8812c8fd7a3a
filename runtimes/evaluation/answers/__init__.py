"""Metrics of one answer to a question; ``metrics`` is the table of all metrics.

metric       the type of a metric                  token_overlap, alce_text  shared by several evaluators
squad  dpr  triviaqa  popqa  selfrag  flashrag     short answers        hotpotqa  twowiki  multi-hop
strategyqa  fever                                  yes/no and labels    asqa  kilt  rouge  long answers
"""
