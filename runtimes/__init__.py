"""What people run: methods that answer questions, the command line, and evaluation. May import everything below.

llms/        language models: one batched interface, several backends          errors     of theirs
methods/     RA-ISF, Self-Reasoning, RetroRAG, ReFeed, and baselines: generators that ask for searches and models
execution/   many questions at once, in waves; what comes of them, and runs on disk
questions/   what is asked, and files of it
cli/         one file a command (typer); entry point ``idx``      evaluation/  scores of retrieval and answers
training/    data to train on, as the papers make it
"""
