"""Search tools for agents over the Model Context Protocol; ``idx mcp`` runs them.

sources     sources of passages: built corpora in this process, or a running server
tools       search, get_passages and list_indexes, with the descriptions for agents
transports  streamable HTTP; the mcp library itself serves standard input and output
"""
