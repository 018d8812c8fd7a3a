"""Methods that answer questions, their evaluation and training data, and the command line. May import all packages below.

llms/        language models: one batched interface, several backends          errors     LLM errors
methods/     RA-ISF, Self-Reasoning, RetroRAG, ReFeed, and baselines: generators that request searches and model calls
execution/   many concurrent questions, in waves; results, and runs on disk
questions/   questions, and readers of question files
cli/         one file per command (typer); entry point ``idx``      evaluation/  scores of retrieval and answers
training/    training data, made as in the papers
"""
