"""Metrics of rankings.

has_answer  DPR's test for an answer in a passage            kilt_pages     KILT's metrics over pages
rankings    trec_eval's metrics, through ir_measures         query_groups   several queries per question, from a file
trec        run and qrels files                              unmatched      problems of the input, counted
scoring     rankings -> a value per question and metric
tuning      choice of a pipeline, with a held-out figure
search_steps   searches of a run's questions         passage_texts  texts of the passages that they found
"""
