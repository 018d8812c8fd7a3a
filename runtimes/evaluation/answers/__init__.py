"""Metrics of one answer to a question.

metric                                          the class Metric
metrics                                         the table of all metrics
squad  dpr  triviaqa  popqa  selfrag  flashrag  metrics of short answers
hotpotqa  twowiki                               metrics of answers to multi-hop questions
strategyqa  fever                               metrics of yes/no answers and of labels
asqa                                            metrics of long answers
kilt                                            metrics of short and long answers
token_overlap  rouge  alce_text                 computations shared by several metrics
"""
