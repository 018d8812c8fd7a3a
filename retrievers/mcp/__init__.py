"""Search tools for agents over the Model Context Protocol; ``idx mcp`` runs them.

sources     sources of passages: built corpora in this process, or a running server
tools       search, get_passages and list_indexes, with the descriptions for agents
stdio       standard input and output, a transport
transports  streamable HTTP
"""
