"""Figures of one answer beside its question; ``metrics`` is the table of them all.

metric       what a figure is                      token_overlap, alce_text  what several evaluators share
squad  dpr  triviaqa  popqa  selfrag  flashrag     short answers        hotpotqa  twowiki  multi-hop
strategyqa  fever                                  yes/no and labels    asqa  kilt  rouge  long answers
"""
