"""The search as tools for agents, by the Model Context Protocol; ``idx mcp`` runs it.

sources     where passages come from: built corpora in this process, or a server that ``idx serve`` runs
tools       search, get_passages and list_indexes: what agents read of them, ask and get
transports  streamable HTTP; standard input and output are mcp's own
"""
