"""Figures of rankings.

has_answer  DPR's test whether a passage holds an answer     kilt_pages     KILT's figures, by pages
rankings    trec_eval's figures, through ir_measures         query_groups   several queries a question, from a file
trec        runs and qrels as files                          data_issues    what does not fit together, counted
scoring     rankings -> a value a question and figure
"""
