"""What people run: methods that answer questions, the command line, and evaluation. May import everything below.

llms/        language models: one batched interface, several backends          errors     of theirs
methods/     RA-ISF, Self-Reasoning, RetroRAG, ReFeed, and baselines: generators that ask for searches and models
executor     many questions at once, in waves          wave       what all of them wait for, served together
questions    what is asked, and files of it            results    what comes of a question: answer, steps, cost
records      that as JSON                              runs       a run on disk, resumed where it stopped
opening      names -> models and a searcher            identity   what tells them apart: checksums, versions
assignments  NAME=VALUE -> switches                    rehearsal  a method's course without a model
json_shape   whether JSON has the types that readers count on
cli/         one file a command (typer); entry point ``idx``      evaluation/  scores of retrieval and answers
training/    data to train on, as the papers make it
mcp/         searches as tools for agents (Model Context Protocol)
"""
