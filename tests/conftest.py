"""Fixtures for all tests: a data home per test, a small corpus, and the shared test data if available."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import hashlib
import json
import math
import os
import resource
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from wikidx.base import compiled
from wikidx.base.errors import MissingExtraError
from wikidx.base.plugins import VARIABLE
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.corpora.corpus import Corpus
from wikidx.corpora.passage import LocatedPassage, OnBad, Passage
from wikidx.corpora.store import PassageStore

ROOT = Path(__file__).parent.parent

hypothesis.settings.register_profile("idx", deadline=None)  # a first example may compile kernels
hypothesis.settings.register_profile("fuzz", deadline=None, max_examples=1_000, derandomize=False)  # what ``make fuzz`` asks for
hypothesis.settings.load_profile("idx")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name bytes by their argument: compressed ones hold the time, and two workers must have the same names."""
    return argname if isinstance(val, bytes) else None


def pytest_collection() -> None:
    """Import all tests without garbage collection, which would visit every module again and again."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Collect garbage again, but not what was imported: it lives as long as the process."""
    gc.collect()
    gc.freeze()
    gc.enable()


def _or_skip() -> Generator[None, Any, Any]:
    """Skip what needs an extra, where the tests are run without extras on purpose."""
    try:
        return (yield)
    except MissingExtraError as error:
        if "IDX_TEST_WITHOUT_EXTRAS" not in os.environ:
            raise
        pytest.skip(str(error).partition(":")[0])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    return (yield from _or_skip())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    return (yield from _or_skip())


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give every test a data home of its own and no mirror. Plug-ins that it names are forgotten after it."""
    monkeypatch.setenv("IDX_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("IDX_MIRROR", raising=False)
    monkeypatch.setenv(VARIABLE, os.environ.get(VARIABLE, ""))
    return tmp_path / "home"


@pytest.fixture(autouse=True)
def machine_code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile kernels where they are tested; interpret them elsewhere, where compiling takes longer than the tests."""
    is_compiled = bool({"contracts", "indexer", "retrievers"} & set(request.path.relative_to(ROOT).parts))
    monkeypatch.setattr(compiled._interpretation, "spent_s", math.inf if is_compiled else 0.0)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real test data; a test that needs it skips where it is absent, except in CI, where it must be there."""
    folder = Path(os.environ.get("IDX_TEST_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        if os.environ.get("CI"):
            pytest.fail(f"CI must have the test data at {folder}")
        pytest.skip(f"needs the test data at {folder} (or set IDX_TEST_DATA)")
    return folder


@contextlib.contextmanager
def file_limit(n_bytes: int) -> Iterator[None]:
    """Let no file of this process grow above a size, which stands for a full disk where nothing can be mounted."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def read_rows(name: str) -> list[Any]:
    """Return the rows of a table below this folder, a line of JSON each."""
    return [json.loads(line) for line in (Path(__file__).parent / name).read_text(encoding="utf-8").splitlines()]


def with_checksum(manifest: dict[str, Any]) -> str:
    """Return the content of an intact ``manifest.json`` with these values."""
    sha256 = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    return json.dumps({**manifest, "sha256": sha256})


def corpus_of(passages: Sequence[Passage], name: str = "made") -> Corpus:
    """Return a corpus that yields these passages, each from the line of its position."""

    def read(files: Sequence[Path], on_bad: OnBad) -> list[LocatedPassage]:
        return [LocatedPassage(passage, "made", line) for line, passage in enumerate(passages, 1)]

    return Corpus(name=name, summary="made in a test", files=(), read=lambda files, on_bad: iter(read(files, on_bad)), n_passages=None)


@pytest.fixture
def build(home: Path) -> Callable[..., PassageStore]:
    """Build and open the store of some passages."""

    def build_passages(passages: Sequence[Passage], name: str = "made") -> PassageStore:
        build_store(corpus_of(passages, name), StoreOptions(replace=True, rebuild=True))
        return open_store(name)

    return build_passages


@pytest.fixture(scope="session")
def embedded_sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the sample, BM25 and MiniLM's vectors, for all processes of a run: one builds them, the others wait. To be copied."""
    from wikidx.retrievers.build_and_open import build

    folder = tmp_path_factory.getbasetemp()
    home = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "embedded sample"
    with pytest.MonkeyPatch.context() as patch, home.with_suffix(".lock").open("w") as lock:
        patch.setenv("IDX_HOME", str(home))
        fcntl.flock(lock, fcntl.LOCK_EX)
        build("sample", "bm25+minilm", show_progress=False).close()
    return home


@pytest.fixture(scope="session")
def made_passages() -> list[Passage]:
    """Three thousand passages with repeated titles and some non-ASCII text, no two texts equal; read-only."""
    return [
        Passage(
            str(n + 1),
            f"Title {n // 3}" if n % 7 else "Ähre – “quoted”",
            f"Passage number {n % 2900} about subject {n % 13}, naïve café {n % 5}.",
        )
        for n in range(3000)
    ]


@pytest.fixture(scope="session")
def made_home(made_passages: list[Passage], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a store of them, "made"; read-only."""
    home = tmp_path_factory.mktemp("made") / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IDX_HOME", str(home))
        build_store(corpus_of(made_passages), StoreOptions())
    return home


@pytest.fixture
def made_store(made_home: Path, monkeypatch: pytest.MonkeyPatch) -> PassageStore:
    """The same store, in the home of this test."""
    monkeypatch.setenv("IDX_HOME", str(made_home))
    return open_store("made")
