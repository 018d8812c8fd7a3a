"""Experiments as data: the tables and figures of the papers, and files of users in the same form.

files    Experiment: a TOML file, read and checked
made     a checkpoint with made weights, for the sample
jobs     an experiment's runs, and an estimate of what is left of them
results  an experiment's runs beside the paper's figures

``<paper>/<table>.toml`` holds a table or figure of a paper. A new experiment is a new file.
"""
