"""Searches that come while their index is being opened wait for it, until their deadline or the end of the server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.retrievers.conftest import LIMITS
from tests.retrievers.server.serving import ask, serving, wait_until
from wikidx.base.errors import IdxError, InputError
from wikidx.corpora.store import PassageStore
from wikidx.retrievers import compiling
from wikidx.retrievers.base import Retriever
from wikidx.retrievers.opening import open_retriever, open_searcher
from wikidx.retrievers.server import open_searchers
from wikidx.retrievers.server.metrics import Metrics
from wikidx.retrievers.server.running import Service
from wikidx.retrievers.server.settings import Settings, listen, server_url

SETTINGS = Settings(corpora=("made", "other"), port=0, limits=LIMITS)
RETRIEVE, OTHER = {"queries": ["fox"]}, {"queries": ["fox"], "corpus": "other"}


class Opening:
    """An opener of retrievers that opens 'other' when it is told to, and cannot open what is broken."""

    def __init__(self) -> None:
        self.may_open, self.is_broken = threading.Event(), False

    def __call__(self, corpus: str, name: str, store: PassageStore, *, device: str) -> Retriever:
        assert corpus == "made" or self.may_open.wait(30)
        if self.is_broken:
            raise InputError("the index is broken")
        return open_retriever(corpus, name, store, device=device)


@pytest.fixture
def opening(made: Path) -> Iterator[Opening]:
    opened = Opening()
    yield opened
    opened.may_open.set()


def test_a_search_waits_for_its_own_index_until_its_deadline(opening: Opening) -> None:
    with serving(SETTINGS, opening, until_ready=False) as url, ThreadPoolExecutor(4) as pool:
        first = [pool.submit(ask, url, path, RETRIEVE) for path in ("/retrieve", "/retrieve/", "/v1/search")]
        late = pool.submit(ask, url, "/v1/search", OTHER)
        assert (ask(url, "/health").json, ask(url, "/ready").status) == ({"alive": True}, 503)
        assert [future.result().status for future in first] == [200] * 3
        for body, headers in ((OTHER, {"Prefer": "wait=0"}), ({**OTHER, "timeout_s": 0.3}, {})):
            refused = ask(url, "/v1/search", body, headers=headers)
            assert (refused.status, refused.json["error_type"], refused.headers["retry-after"]) == (503, "NotReady", "1")
        assert not late.done()
        opening.may_open.set()
        assert [hit["id"] for hit in late.result().json["rankings"][0]] == [
            hit.passage.id for hit in open_searcher("other").search(["fox"])[0]
        ]


@pytest.mark.parametrize(
    ("is_broken", "reason"), [(True, "the server cannot open what it serves: the index is broken"), (False, "the server ends")]
)
def test_who_waits_in_vain_is_told_why(opening: Opening, is_broken: bool, reason: str) -> None:
    service = Service(SETTINGS, listener := listen(SETTINGS), Metrics(), opening)
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(service.run)
        wait_until(lambda: ask(server_url(listener), "/ready").json.get("served", [{}])[0].get("state") == "ready")
        waiting = pool.submit(ask, server_url(listener), "/v1/search", OTHER)
        with pytest.raises(TimeoutError):
            waiting.result(0.5)
        if is_broken:
            opening.is_broken = True
            opening.may_open.set()
        else:
            service.stop()
        assert (waiting.result().status, waiting.result().json["error"], "retry-after" in waiting.result().headers) == (503, reason, False)
        opening.may_open.set()
        assert isinstance(running.exception(), IdxError if is_broken else type(None))


@pytest.mark.parametrize("fails", [False, True])
def test_small_corpora_are_searched_while_other_processes_compile(opening: Opening, monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    compiled = threading.Event()

    def compile_kernels(kind: str) -> None:
        assert (kind, compiled.wait(30)) == ("search", True)
        if fails:
            raise IdxError("killed")

    monkeypatch.setattr(compiling, "is_needed", lambda: True)
    monkeypatch.setattr(compiling, "compile_kernels", compile_kernels)
    monkeypatch.setattr(open_searchers, "_MOST_INTERPRETED", 100)  # 'made' has 600 passages, 'other' 30
    opening.may_open.set()
    expected = {corpus: [hit.passage.id for hit in open_searcher(corpus).search(["fox"])[0]] for corpus in ("made", "other")}
    with serving(SETTINGS, opening, until_ready=False) as url:
        assert [hit["id"] for hit in ask(url, "/v1/search", OTHER).json["rankings"][0]] == expected["other"]
        assert ask(url, "/v1/search", RETRIEVE, headers={"Prefer": "wait=0"}).status == 503
        compiled.set()
        wait_until(lambda: ask(url, "/ready").status == 200)
        for corpus, body in (("made", RETRIEVE), ("other", OTHER)):
            assert [hit["id"] for hit in ask(url, "/v1/search", body).json["rankings"][0]] == expected[corpus]
