"""Evaluation of answers and rankings. A metric is named after its official evaluator and computes the evaluator's values.

answers/    metrics of one answer
by_models/  metrics computed by a model: ALCE's citations (NLI), LLM judges
retrieval/  metrics of rankings, as in DPR, trec_eval and KILT
reports/    reports as text, Markdown, JSON and HTML with plots

prediction_files  reader of prediction files             predictions    the predictions of a run
run_facts         reader of run.json                     run_questions  the questions of a run
normalizing       normalisation of answers               scoring        values per question and metric
outcomes          problems of answers, groups            uncertainty    intervals and paired tests
step_recall       recall of a run's searches             missing_extras what is left out without its extra
comparing         comparison of runs                     published      the papers' figures
long_table        the values of runs, which reports group data_issues    irregular input, and what becomes of it
"""
