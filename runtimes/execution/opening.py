"""Opening of what a plan names: options, models by role and a searcher; and their description for the record of a run."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wikidx.corpora.errors import InputError
from wikidx.corpora.registry import near_names
from wikidx.retrievers.base import Searcher
from wikidx.retrievers.options import SearchOptions
from wikidx.runtimes.execution.rehearsal import StandInSearcher, made_up_passages, rehearse, stand_in_llm
from wikidx.runtimes.execution.wave import Services, Titled
from wikidx.runtimes.llms.cache import ReplyCache
from wikidx.runtimes.llms.naming import BACKENDS, Settings, Spec, choose, close_llms, open_llms
from wikidx.runtimes.llms.options import ConnectionOptions
from wikidx.runtimes.methods.base import Method, Preset, list_options
from wikidx.runtimes.methods.templates import prompt_hashes

from .assignments import assigned
from .identity import local_fingerprints, model_identity, served

RERANKER = "simlm"  # the default cross-encoder

_STAND_IN = Spec(None, "stand-in", "", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The corpus, retriever and search options of a method.

    Attributes:
        corpus: a built corpus, or one that is served at ``url``; None: the server's first.
        retriever: an index, or several joined with "+"; None: the server's first.
        url: of a server; None: search in this process.
        api_key: the server's.
        reranker: a cross-encoder for local searches with ``rerank="cross-encoder"``; None: SimLM's.
        options: of all searches; a request of the method has its own ``k``.
    """

    corpus: str | None
    retriever: str | None
    url: str | None = None
    api_key: str | None = None
    reranker: str | None = None
    options: SearchOptions = SearchOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A method with its options, models and search.

    Attributes:
        method, options: the method and its options.
        llms: models as named by the user.
        place: where it searches; None: nowhere.
        connection: options of endpoints; the timeout also applies to searches at a URL.
        device: where local models, encoders and indexes run.
        is_dry: models other than scripted ones are replaced by stand-ins, and so is the corpus if none is named.
    """

    method: Method
    options: Any
    llms: Sequence[str] = ()
    place: Place | None = None
    connection: ConnectionOptions = ConnectionOptions()
    device: str = "auto"
    is_dry: bool = False

    def check(self) -> None:
        """Check that the plan can work, before anything is opened.

        Raises:
            InputError, UnknownNameError: a model, an option or the place does not suit the method.
        """
        self.chosen()
        can_search = self.place is not None or self.is_dry
        can_look_up = can_search and (self.place is None or self.place.url is None)
        rehearse(self.method, self.options, can_search=can_search, can_look_up=can_look_up)

    def chosen(self) -> dict[str, Spec]:
        """Return the specification of each role's model; raises as ``choose`` does."""
        if not self.is_dry:
            return choose(self.llms, self.method.roles)
        named = choose(self.llms, self.method.roles, default=_STAND_IN)
        scripts = {name for name, backend in BACKENDS.items() if backend.kind == "script"}
        return {role: spec if spec.backend in scripts else _STAND_IN for role, spec in named.items()}


def place_of(method: Method, preset: str | None, named: Place, assignments: Sequence[str]) -> Place | None:
    """Return where to search: the values named, with the rest from the method's preset, if one is named; None: nowhere.

    Args:
        method: the owner of the presets.
        preset: name of a preset; None: no preset.
        named: values named by the user; its options are ignored.
        assignments: ``NAME=VALUE`` of search options.

    Raises:
        UnknownNameError, InputError: there is no such preset or option, or a value is wrong.
    """
    if preset is not None and preset not in method.presets:
        raise near_names(f"preset of '{method.name}'", preset, method.presets)
    chosen = method.presets[preset] if preset is not None else Preset(corpus="", retriever="")
    options = assigned(SearchOptions, assignments, what="search option", base=chosen.search, but=("k",))
    corpus, retriever = named.corpus or chosen.corpus or None, named.retriever or chosen.retriever or None
    if corpus is None and named.url is None:
        given = "--retriever" if named.retriever else "--search" if assignments else "--reranker" if named.reranker else None
        if given:
            raise InputError(f"{given} says how to search, but not where: add --corpus, --preset or --url")
        return None
    if named.url is not None and named.reranker is not None:
        raise InputError("--reranker is for searches on this machine: a server has its own")
    return dataclasses.replace(named, corpus=corpus, retriever=retriever, options=options)


def described(plan: Plan) -> dict[str, Any]:
    """Return everything in a plan that decides the results, as JSON values, without opening models.

    Raises:
        IdxError: a corpus, an index, a script or a server is missing.
    """
    models = {
        role: {"backend": "stand-in"} if spec == _STAND_IN else model_identity(spec, plan.device) for role, spec in plan.chosen().items()
    }
    return {
        "method": plan.method.name,
        "switches": {one.name: {"value": one.value, "default": one.default, "origin": one.origin} for one in list_options(plan.options)},
        "prompts": prompt_hashes([plan.method.name]),
        "models": models,
        "search": None if plan.place is None else _search_about(plan.place, plan.device),
    }


def _search_about(place: Place, device: str) -> dict[str, Any]:
    options = {name: value for name, value in dataclasses.asdict(place.options).items() if name != "k"}
    if place.url is not None:
        from wikidx.retrievers.client import ServerClient

        with contextlib.closing(ServerClient(place.url, api_key=place.api_key)) as client:
            return {"url": client.url, **served(client, place.corpus, place.retriever), "options": options}
    corpus, retriever, reranker = _named(place)
    fingerprints = local_fingerprints(corpus, retriever)
    about = {"corpus": corpus, "retriever": retriever, "reranker": reranker, "device": device}
    return {**about, "fingerprints": fingerprints, "options": options}


def _named(place: Place) -> tuple[str, str, str | None]:
    """Return corpus, retriever and reranker of a search on this machine."""
    reranker = place.reranker or (RERANKER if place.options.rerank == "cross-encoder" else None)
    return place.corpus or "", place.retriever or "bm25", reranker


@contextlib.contextmanager
def opened(plan: Plan, *, cache: Path | None = None) -> Iterator[Services]:
    """Open the models and searcher of a plan; everything is closed at the end.

    Args:
        plan: checked.
        cache: a file for the replies of endpoints, created only if there are endpoints; None: replies are not kept.

    Raises:
        IdxError: something cannot be opened.
    """
    chosen = plan.chosen()
    with contextlib.ExitStack() as closing:
        searcher, titled = _open_search(plan, closing)
        given = {role: spec for role, spec in chosen.items() if spec != _STAND_IN}
        replies = ReplyCache(cache) if cache and any(BACKENDS[spec.backend].kind == "endpoint" for spec in given.values()) else None
        if replies is not None:
            closing.callback(replies.close)
        llms = open_llms(given, Settings(plan.connection, replies, plan.device))
        closing.callback(close_llms, llms.values())
        options = plan.place.options if plan.place else SearchOptions()
        yield Services(llms={**dict.fromkeys(chosen, stand_in_llm()), **llms}, searcher=searcher, titled=titled, search=options)


def _open_search(plan: Plan, closing: contextlib.ExitStack) -> tuple[Searcher | None, Titled | None]:
    """Return the searcher and the title lookup; None: there is none."""
    place = plan.place
    if place is None:
        return (StandInSearcher(), made_up_passages) if plan.is_dry else (None, None)
    if place.url is not None:
        from wikidx.retrievers.client import RemoteSearcher, ServerClient

        with contextlib.closing(ServerClient(place.url, api_key=place.api_key)) as client:
            found = served(client, place.corpus, place.retriever)
        corpus, retriever, timeout_s = found["corpus"], found["retriever"], plan.connection.timeout
        remote = RemoteSearcher(place.url, corpus=corpus, retriever=retriever, api_key=place.api_key, timeout=timeout_s)
        closing.callback(remote.close)
        return remote, None
    from wikidx.corpora.build import open_store
    from wikidx.retrievers.opening import open_searcher

    corpus, retriever, reranker = _named(place)
    searcher, store = open_searcher(corpus, retriever, device=plan.device, reranker=reranker), open_store(corpus)
    return searcher, lambda title: store.get_many(store.rows_titled(title))
