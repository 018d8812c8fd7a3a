"""Searchers as components of other frameworks, each in the module named after it, which needs the extra of that name.

pyterrier    Retriever and Reranker, for pipelines and experiments      dspy         Retriever, a retrieval callable
langchain    Retriever, a BaseRetriever                                 haystack     Retriever, a component
llama_index  Retriever, a BaseRetriever
"""
