"""Plan of a run: its check, its description for ``run.json``, and the opening of its models and searcher."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wikidx.base.artifacts.building import strip_credentials
from wikidx.base.errors import InputError
from wikidx.base.plugins import recorded
from wikidx.base.registry import unknown_name_error
from wikidx.indexer.networks.network_size import Dtype
from wikidx.retrievers.base import Searcher
from wikidx.retrievers.options import SearchOptions
from wikidx.retrievers.rerankers import RERANKERS
from wikidx.runtimes.assignments import parse_assignments
from wikidx.runtimes.execution.dispatching import Services, TitleLookup
from wikidx.runtimes.execution.given import GIVEN, GivenPassages
from wikidx.runtimes.execution.rehearsal import (
    StandInSearcher,
    rehearse,
    rehearsed_passages,
    stand_in_llm,
    stand_in_passages,
    stand_in_similarity,
)
from wikidx.runtimes.execution.similarity import EncoderSimilarity
from wikidx.runtimes.llms.base import LLM
from wikidx.runtimes.llms.cache import CachedLLM, ReplyCache
from wikidx.runtimes.llms.naming import STAND_IN, ModelSpec, Settings, assign_models, close_llms, find_backend, open_llms
from wikidx.runtimes.llms.options import ConnectionOptions
from wikidx.runtimes.llms.prompts import Thinking
from wikidx.runtimes.methods import METHODS, find_method
from wikidx.runtimes.methods.base import Method, Preset, list_options
from wikidx.runtimes.methods.prompt_sets import hash_prompts
from wikidx.runtimes.questions import Question

from .identity import describe_served, local_fingerprints, model_identity


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchTarget:
    """The corpus, retriever and search options of a method.

    Attributes:
        corpus: a built corpus, or a corpus served at ``url``; empty: the server's first.
        retriever: an index, or several joined with "+"; empty: the server's first.
        url: URL of a server; None: search in this process.
        api_key: the server's API key.
        timeout: seconds until the server must have answered a batch of searches, with retries.
        reranker: a cross-encoder for local searches; None: they need none.
        options: options of all searches, except ``k``, which each request of the method sets itself.
        given: passages that come with the questions, in place of corpus and retriever; None: those are searched.
    """

    corpus: str = ""
    retriever: str = ""
    url: str | None = None
    api_key: str | None = None
    timeout: float = 60.0
    reranker: str | None = None
    options: SearchOptions = SearchOptions()
    given: GivenPassages | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A method with its options, models and search.

    Attributes:
        llms: models as named by the user, ``[ROLE=]BACKEND:MODEL[@URL]``.
        llm_options: options of models that idx runs, ``[ROLE.]NAME=VALUE``.
        target: the search target; None: no search.
        connection: options of endpoints.
        device: device of local models, encoders and indexes.
        query_dtype: precision in which queries are encoded; see ``open_searcher``.
        thinking: whether the models think before they answer, or for how many tokens.
        is_dry: whether stand-ins replace all models except scripted ones, and the searcher if there is no target.
    """

    method: Method
    options: Any
    llms: Sequence[str] = ()
    llm_options: Sequence[str] = ()
    target: SearchTarget | None = None
    connection: ConnectionOptions = ConnectionOptions()
    device: str = "auto"
    query_dtype: Dtype | None = None
    thinking: Thinking = "off"
    is_dry: bool = False

    def check(self) -> None:
        """Check models, options and search target without opening them.

        Raises:
            InputError, UnknownNameError: a model, an option or the search target does not suit the method.
        """
        self.specs()
        if self.query_dtype is not None and self.target is not None and self.target.url is not None:
            raise InputError("--query-dtype is for searches on this machine: a server has its own")
        given = self.target.given if self.target else None
        searcher = rehearsed_passages(given) if given else StandInSearcher() if self.target or self.is_dry else None
        can_look_up = searcher is not None and given is None and (self.target is None or self.target.url is None)
        rehearse(self.method, self.options, searcher=searcher, can_look_up=can_look_up)

    def specs(self) -> dict[str, ModelSpec]:
        """Return the specification of each role's model; raises as ``assign_models`` does."""
        if not self.is_dry:
            return assign_models(self.llms, self.method.roles, options=self.llm_options)
        named = assign_models(self.llms, self.method.roles, default=STAND_IN, options=self.llm_options)
        return {role: spec if spec.is_stand_in or find_backend(spec.backend).kind == "script" else STAND_IN for role, spec in named.items()}


def resolve_target(method: Method, preset: str | None, named: SearchTarget, assignments: Sequence[str]) -> SearchTarget | None:
    """Return the user's search target, completed from a preset and by defaults; None if there is neither a corpus nor a URL.

    ``preset`` is a name of the method's, or "other method/name". ``assignments`` are search options as ``NAME=VALUE``; they replace those
    of ``named``.

    Raises:
        UnknownNameError: the preset or a search option is unknown.
        InputError: a value is invalid, search settings are given without a corpus, or a reranker is given with a URL.
    """
    owner, _, name = (preset or "").rpartition("/")
    known = find_method(owner).presets if owner else method.presets
    if preset is not None and name not in known:
        raise unknown_name_error(f"preset of '{owner or method.name}'", name, known)
    paper = known[name] if preset is not None else Preset(corpus="", retriever="")
    options = parse_assignments(SearchOptions, assignments, noun="search option", base=paper.search, excluded=("k",))
    corpus, retriever, reranker = named.corpus or paper.corpus, named.retriever or paper.retriever, named.reranker
    if not corpus and named.url is None:
        given = "--retriever" if named.retriever else "--search" if assignments else "--reranker" if named.reranker else None
        if given:
            raise InputError(f"{given} says how to search, but not where: add --corpus, --preset or --url")
        return None
    if named.url is not None and named.reranker is not None:
        raise InputError("--reranker is for searches on this machine: a server has its own")
    if named.url is None:
        retriever, reranker = retriever or "bm25", reranker or ("simlm" if options.rerank == "cross-encoder" else None)
    return dataclasses.replace(named, corpus=corpus, retriever=retriever, reranker=reranker, options=options.with_reranker(named.reranker))


def describe(plan: Plan) -> dict[str, Any]:
    """Return the parts of a plan that affect the results, as JSON values. No model is opened.

    Raises:
        IdxError: a corpus, an index, a script or a server is missing.
    """
    models = {
        role: {"backend": "stand-in"} if spec.is_stand_in else model_identity(spec, plan.device) for role, spec in plan.specs().items()
    }
    return {
        "method": plan.method.name,
        **recorded("method", plan.method.name, METHODS),
        "options": {
            option.name: {"value": option.value, "default": option.default, "origin": option.origin}
            for option in list_options(plan.options)
        },
        "prompts": hash_prompts(plan.method, getattr(plan.options, "expand", "none")),
        "models": models,
        "search": None if plan.target is None else _describe_search(plan.target, plan),
        "context": plan.connection.context,
        **({"thinking": plan.thinking} if plan.thinking != "off" else {}),
        **({"extra_body": dict(plan.connection.extra_body)} if plan.connection.extra_body else {}),
    }


def given_target(questions: Sequence[Question] | None, named: SearchTarget, others: Mapping[str, object]) -> SearchTarget:
    """Return the target of ``--retriever given``, whose passages come with the questions.

    Args:
        questions: the questions with their passages; None: the command has no file of questions.
        named: the user's target.
        others: further options that say how or where to search -> values.

    Raises:
        InputError: there are no questions, one has no passages, or another option says how or where to search.
    """
    if questions is None:
        raise InputError(f"--retriever {GIVEN} reads the passages of a file of questions: only 'idx run' and 'idx reproduce' have one")
    others = {"--corpus": named.corpus, "--url": named.url, "--reranker": named.reranker, **others}
    if extra := next((name for name, value in others.items() if value), None):
        raise InputError(f"{extra} says where or how to search, but --retriever {GIVEN} searches nothing: leave one of them out")
    return SearchTarget(retriever=GIVEN, given=GivenPassages.of_questions(questions))


def _describe_search(target: SearchTarget, plan: Plan) -> dict[str, Any]:
    if target.given is not None:
        return {"retriever": GIVEN, "fingerprints": {"passages": target.given.digest()}}
    options = {name: value for name, value in dataclasses.asdict(target.options).items() if name != "k"}
    if target.url is not None:
        return {**_describe_server(target), "options": options}
    reranker = target.reranker and strip_credentials(target.reranker)
    names = {"corpus": target.corpus, "retriever": target.retriever, "reranker": reranker, "device": plan.device}
    names |= recorded("reranker", target.reranker or "", RERANKERS)
    return {**names, "fingerprints": local_fingerprints(target.corpus, target.retriever), "options": options}


def _describe_server(target: SearchTarget) -> dict[str, Any]:
    from wikidx.retrievers.client import RemoteSearcher

    with contextlib.closing(RemoteSearcher(target.url or "", api_key=target.api_key)) as client:
        return describe_served(client, target.corpus, target.retriever)


@contextlib.contextmanager
def open_services(plan: Plan, *, cache: Path | None = None) -> Iterator[Services]:
    """Open a plan's models and searcher, and close them when the context ends.

    Args:
        plan: a plan that ``Plan.check`` accepts.
        cache: file for replies of models, created only if the plan has one besides scripts; None: replies are not cached.

    Raises:
        IdxError: a model, the corpus or the retriever cannot be opened.
    """
    specs = plan.specs()
    with contextlib.ExitStack() as stack:
        searcher, look_up_title = _open_search(plan, stack)
        given = {role: spec for role, spec in specs.items() if not spec.is_stand_in}
        caches = cache is not None and any(find_backend(spec.backend).kind in ("endpoint", "checkpoint") for spec in given.values())
        replies = stack.enter_context(contextlib.closing(ReplyCache(cache))) if cache and caches else None
        llms = open_llms(given, Settings(plan.connection, replies, plan.device, plan.thinking))
        stack.callback(close_llms, llms.values())
        llms = llms if replies is None else _cache_replies(llms, given, plan, replies)
        options = plan.target.options if plan.target else SearchOptions()
        yield Services(
            llms={**dict.fromkeys(specs, stand_in_llm()), **llms},
            searcher=searcher,
            look_up_title=look_up_title,
            similarity=stand_in_similarity if plan.is_dry else EncoderSimilarity(plan.device),
            search=options,
        )


def _cache_replies(llms: Mapping[str, LLM], specs: Mapping[str, ModelSpec], plan: Plan, replies: ReplyCache) -> dict[str, LLM]:
    """Return the models, those in this process with cached replies. A model of several roles remains one; endpoints cache by themselves."""
    cached: dict[ModelSpec, LLM] = {}
    for role, spec in specs.items():
        if spec not in cached and find_backend(spec.backend).kind == "checkpoint":
            identity = model_identity(spec, plan.device)
            if identity.get("commit", True) is not None:
                known = json.dumps([identity, plan.thinking, llms[role].capabilities.context], sort_keys=True, default=str)
                cached[spec] = CachedLLM(llms[role], replies, known)
    return {role: cached.get(specs[role], llm) for role, llm in llms.items()}


def _open_search(plan: Plan, stack: contextlib.ExitStack) -> tuple[Searcher | None, TitleLookup | None]:
    """Return the searcher and the title lookup, each None if unavailable."""
    target = plan.target
    if target is None:
        return (StandInSearcher(), stand_in_passages) if plan.is_dry else (None, None)
    if target.given is not None:
        return target.given, None
    if target.url is not None:
        from wikidx.retrievers.client import RemoteSearcher

        names = {name: served for name, served in _describe_server(target).items() if name in ("corpus", "retriever")}
        remote = RemoteSearcher(target.url, api_key=target.api_key, timeout=target.timeout, **names)
        stack.callback(remote.close)
        return remote, None
    from wikidx.corpora.build import open_store
    from wikidx.retrievers.opening import open_searcher

    searcher = open_searcher(target.corpus, target.retriever, device=plan.device, query_dtype=plan.query_dtype, reranker=target.reranker)
    store = open_store(target.corpus)
    return searcher, lambda title: store.get_many(store.rows_with_title(title))
