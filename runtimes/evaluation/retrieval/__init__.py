"""Figures of rankings.

has_answer  DPR's test whether a passage holds an answer, compiled     answer_tokens  its tokens
rankings    trec_eval's figures, through ir_measures                   kilt_pages     KILT's, by pages
trec        runs and qrels as files                                    query_groups   several queries a question, from a file
scoring     rankings -> a value a question and figure                  data_issues    what does not fit together, counted
"""
