"""Methods: ``async`` functions that await requests for searches and model calls.

base             Method, options, Answer          requests       the requests, and functions that send them
templates        prompts from text files          prompts/       the text files, one folder per method
forms            forms of answers             prompt_sets      replaced prompts and demonstrations
sentences        sentences and words of a text    model_output   lenient parsing of JSON, labelled lines, lists
written_answers  answers in generated texts       sub_questions  parsing of lists of sub-questions
reading          options of searches: expansion, noise, random order
expansion        queries that a model adds to a query
asking_again     a second request for the answer that a JSON reply lacks

direct  cot  least_to_most  genread  rag  ircot  iter_retgen  self_ask  react   the baselines, one file each
ra_isf  self_reasoning  retrorag  refeed                                         the papers' methods, one package each
replug  recomp  self_rag  crag  metarag  searchain
skr  adaptive_rag  chain_of_note  flare                                          what the papers compare with, one file each
"""

from typing import Any

from wikidx.base.plugins import PlugIn, find, plug_in_names

_PAPERS = ("ra_isf", "self_reasoning", "retrorag", "refeed")
_BASELINES = ("direct", "cot", "least_to_most", "genread", "rag", "ircot", "iter_retgen", "self_ask", "react")
_COMPARED = ("replug", "recomp", "self_rag", "crag", "metarag", "searchain", "skr", "adaptive_rag", "chain_of_note", "flare")
METHODS = {name: f"{__name__}.{name}:METHOD" for name in (*_PAPERS, *_BASELINES, *_COMPARED)}
"""Name -> the method, which is imported on first use; a plug-in is found by the same function."""


def find_method(name: str) -> Any:  # noqa: ANN401 - a Method; the import would slow down the command line
    """Return the ``Method`` with a name, of idx or of a plug-in.

    Raises:
        UnknownNameError: no method has this name.
        InputError: see ``wikidx.base.plugins.find``.
    """
    return find("method", name, METHODS, _plugged_method)


def _plugged_method(plugged: PlugIn) -> Any:  # noqa: ANN401
    from .base import Method

    return plugged.instance_of(Method, "a method is a wikidx.runtimes.methods.base.Method")


def method_names() -> list[str]:
    """Return the names of all methods."""
    return [*METHODS, *plug_in_names("method")]
