"""Evaluation of answers and rankings; each metric is named after its origin and equals the official evaluator's.

answers/    metrics of one answer, one small file per evaluator; ``metrics`` is the table
by_models/  metrics computed by a model: ALCE's citations (NLI), LLM judges
retrieval/  metrics of rankings: DPR's has_answer, trec_eval's, KILT's; TREC's files
reports/    text, Markdown, JSON, HTML and plots

predictions  the answers of a system               run_questions  the questions of a run
scoring      predictions × questions × metrics     comparing      runs side by side
uncertainty  intervals, paired tests               published      the papers' figures, as data
run_facts    run.json: method, model, retriever    normalizing    normalisation of answers
prediction_files  records from prediction files
"""
