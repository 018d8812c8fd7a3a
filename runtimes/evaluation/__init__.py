"""How good answers and rankings are, each figure named by its origin and equal to its official evaluator's.

answers/    figures of one answer beside its question: one small file an evaluator; ``metrics`` is the table
by_models/  figures for which a model is asked: ALCE's citations (NLI), judges
retrieval/  figures of rankings: DPR's has_answer, trec_eval's, KILT's; TREC's files
reports/    text, Markdown, JSON, HTML and plots

predictions  what a system has answered, read      run_questions  the questions that it was asked
scoring      predictions × questions × figures     comparing      runs side by side
uncertainty  intervals, paired tests               published      the papers' figures, as data
run_facts    run.json: what made a run             normalizing    answers as evaluators compare them
prediction_files  files that predictions are read from
"""
