"""Ranges of rows, merged, are the whole index: to the bit, wherever the borders are."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import wikidx.retrievers.cluster.sharded
from tests.conftest import ROOT
from tests.indexer.made_vectors import clustered, put_vectors
from tests.retrievers.retrieving import at_home, build_corpus
from wikidx.base.errors import ArtifactMismatch, InputError
from wikidx.base.machine.threads import equal_ranges, n_threads
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.base import SearchParams
from wikidx.indexer.build import build_index, open_vector_index, open_vectors
from wikidx.indexer.scope import Scope
from wikidx.retrievers.base import UnsearchedRows
from wikidx.retrievers.cancellation import cancellation_scope
from wikidx.retrievers.cluster.shard import Index, OpenRange, ShardRange, check_identity, index_identity
from wikidx.retrievers.cluster.sharded import Replica, Shard, ShardedIndex
from wikidx.retrievers.errors import DeadlineExceeded, ShardUnavailable
from wikidx.retrievers.server.metrics import Metrics

N = 150
borders = st.lists(st.integers(0, N), max_size=4)
MISSING = (0, 17, 18, 149)
KINDS = ("int8", "ivf", "ivfpq")
quickly = settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)


class LostError(Exception):
    """Ray's error for a process that is lost."""


class LocalCall:
    """Ray's reference of a call, which is run when its answer is taken."""

    def __init__(self, process: LocalProcess, answer: Callable[[], Any]) -> None:
        self.process, self.answer, self.is_cancelled = process, answer, False


class LocalProcess:
    """The process of a shard in this process, and Ray's handle of it; a silent one gives no answer."""

    def __init__(self, opened: OpenRange) -> None:
        self.opened, self.is_lost, self.is_silent, self.calls = opened, False, False, list[LocalCall]()
        self.call = self

    def remote(self, method: str, index: Index, *arguments: Any) -> LocalCall:  # noqa: ANN401
        self.calls.append(LocalCall(self, lambda: (getattr(self.opened, method)(*arguments), 0.0)))
        return self.calls[-1]


class LocalRay:
    """The part of Ray that calls to shards use."""

    exceptions = SimpleNamespace(RayError=LostError)

    def wait(self, calls: list[LocalCall], *, num_returns: int, timeout: float) -> tuple[list[LocalCall], list[LocalCall]]:
        assert num_returns == len(calls)
        late = [call for call in calls if call.process.is_silent]
        time.sleep(timeout if late else 0.0)
        return [call for call in calls if call not in late], late

    def get(self, call: LocalCall) -> tuple[Any, float]:
        if call.process.is_lost:
            raise LostError
        answer: tuple[Any, float] = call.answer()
        return answer

    def cancel(self, call: LocalCall) -> None:
        call.is_cancelled = True


@pytest.fixture(autouse=True)
def local_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wikidx.retrievers.cluster.sharded, "load_ray", LocalRay)


def local_shards(name: str, bounds: Sequence[int], n_replicas: int = 1) -> list[Shard]:
    """Open the ranges between consecutive bounds; equal ones make an empty range."""
    index, identity, shards = ("made", name), index_identity("made", name), list[Shard]()
    for number, (start, stop) in enumerate(pairwise([0, *sorted(bounds), identity.n_rows])):
        shard_range = ShardRange(index, identity, range(start, stop), "cpu")
        opened = OpenRange(shard_range)
        replicas = [Replica(LocalProcess(opened), is_ready=True, indexes={index: opened.description}) for _ in range(n_replicas)]
        shards.append(Shard(number, {index: shard_range}, replicas))
    return shards


def index_over(name: str, shards: Sequence[Shard]) -> ShardedIndex:
    return ShardedIndex(("made", name), shards, 30.0, Metrics())


def sharded_vectors(name: str, bounds: Sequence[int]) -> ShardedIndex:
    return index_over(name, local_shards(name, bounds))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PassageStore]:
    """A small corpus; the home stays for the module."""
    with at_home(tmp_path_factory.mktemp("ranges")):
        yield build_corpus("made", [Passage(str(i), "", f"text {i}") for i in range(N)])


@pytest.fixture(scope="module")
def vectors(store: PassageStore) -> np.ndarray:
    """Vectors over it, every third one equal to another, some rows without; and all kinds of indexes made of them."""
    pytest.importorskip("faiss", reason="needs the extra 'dense'")
    found = clustered(N, 8, seed=1)
    found[2::3] = found[: len(found[2::3])]
    put_vectors(store, found, missing=MISSING)
    for kind in (*KINDS, "hnsw"):
        build_index("made", f"minilm-{kind}", store)
    return found


@pytest.fixture(autouse=True)
def home(store: PassageStore, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The module's home, not one of each test's own."""


def questions(vectors: np.ndarray, seed: int, n: int) -> np.ndarray:
    return np.concatenate([clustered(n, 8, seed), vectors[:2]]).astype(np.float32)


@pytest.mark.parametrize("name", ["minilm", *(f"minilm-{kind}" for kind in KINDS)])
@quickly
@given(bounds=borders, asked_for=st.tuples(st.integers(0, 5), st.sampled_from([1, 3, 33])), k=st.sampled_from([1, 10, 60, 149, 200]))
def test_vectors_are_the_whole_index_to_the_bit(
    store: PassageStore, vectors: np.ndarray, name: str, bounds: list[int], asked_for: tuple[int, int], k: int
) -> None:
    whole, sharded = open_vector_index("made", name, store), sharded_vectors(name, bounds)
    asked = questions(vectors, *asked_for)
    assert len(sharded) == len(whole) == N
    assert sharded.parameters == whole.parameters
    within = [Scope.of(rows, N) for rows in (range(3, N, 4), [7, 8], [])]
    given = (
        [SearchParams(refine=0, nprobe=1)] if "nprobe" in whole.parameters else [SearchParams(refine=0, scope=scope) for scope in within]
    )
    for params in (SearchParams(refine=0), *given):
        for found, expected in zip(sharded.search(asked, k, params), whole.search(asked, k, params), strict=True):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ["minilm-int8", "minilm-ivfpq"])
@pytest.mark.parametrize("refine", [None, 1, 3])
def test_candidates_are_those_of_the_whole_index(store: PassageStore, vectors: np.ndarray, name: str, refine: int | None) -> None:
    """They are its best by stored codes, ties by row, then ranked by the vectors; not the best of each range."""
    whole, sharded, exact = (
        open_vector_index("made", name, store),
        sharded_vectors(name, (40, 41, 100)),
        open_vectors("made", "minilm", store),
    )
    assert exact is not None
    asked = questions(vectors, 3, 20)
    for k in (1, 7, 30):
        n_candidates = min(k * (refine or whole.parameters["refine"].default), N - len(MISSING))
        candidates = whole.search(asked, n_candidates, SearchParams(refine=0)).rows
        scores = np.sort(exact.scores(asked, candidates), axis=1)[:, : -k - 1 : -1]
        found = sharded.search(asked, k, SearchParams(refine=refine))
        np.testing.assert_allclose(found.scores, scores, rtol=1e-5, atol=1e-5)
        for line, rows in enumerate(found.rows):
            assert set(rows) <= set(candidates[line])


@quickly
@given(bounds=borders, seed=st.integers(0, 5))
def test_given_rows_are_scored_where_they_are(store: PassageStore, vectors: np.ndarray, bounds: list[int], seed: int) -> None:
    exact, sharded = open_vectors("made", "minilm", store), sharded_vectors("minilm", bounds)
    assert exact is not None
    asked, rng = questions(vectors, seed, 4), np.random.default_rng(seed)
    rows = rng.integers(-1, N, (len(asked), 9))
    rows[0] = -1
    found, expected = sharded.scores(asked, rows), exact.scores(asked, rows)
    np.testing.assert_array_equal(np.isneginf(found), np.isneginf(expected))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)  # inner products of unit vectors, which may be near 0


def test_what_cannot_be_cut_is_refused(store: PassageStore, vectors: np.ndarray) -> None:
    with pytest.raises(InputError, match="'minilm-hnsw' is one graph over all vectors, which cannot be searched in parts: use exact"):
        local_shards("minilm-hnsw", (75,))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (SearchParams(nprobe=10**6), "nprobe 1,000,000: for 'minilm-ivfpq' it can be"),
        (SearchParams(refine=10**6), "refine 1,000,000"),
    ],
)
def test_a_parameter_beyond_the_index_is_refused(vectors: np.ndarray, params: SearchParams, message: str) -> None:
    with pytest.raises(InputError, match=message):
        sharded_vectors("minilm-ivfpq", (75,)).search(vectors[:1], 5, params)


@pytest.mark.parametrize(
    ("field", "what"), [("fingerprint", "its passages are"), ("files", "its files are"), ("vectors", "its vectors are")]
)
def test_another_index_is_refused(vectors: np.ndarray, field: str, what: str) -> None:
    expected = index_identity("made", "minilm-int8")
    check_identity("made", "minilm-int8", expected)
    with pytest.raises(ArtifactMismatch, match=f"is not the served index: {what} .*, not 111111111111:"):
        check_identity("made", "minilm-int8", expected._replace(**{field: "1" * 64}))  # type: ignore[arg-type]


def test_what_cannot_be_searched_raises_or_is_left_out_and_named_where_that_is_allowed(vectors: np.ndarray) -> None:
    shards = local_shards("minilm-int8", (40, 100))
    shards[1].replicas[0].handle.is_lost = True
    sharded = index_over("minilm-int8", shards)
    message = (
        r"shard 1 \(rows 40 to 99 of 'made/minilm-int8'\) cannot be searched: all of its replicas are lost \(node unknown: LostError\)"
    )
    with pytest.raises(ShardUnavailable, match=message):
        sharded.search(vectors[:2], 5)
    unsearched = set[UnsearchedRows]()
    with cancellation_scope(unsearched=unsearched):
        found = sharded.search(vectors[:2], N)
    assert unsearched == {UnsearchedRows("minilm-int8", 40, 100)}
    assert set(found.rows[0]) == {-1, *range(40), *range(100, N)} - set(MISSING)
    with pytest.raises(ShardUnavailable, match=r"all of its replicas are lost; ask again"):  # after that all rows are needed as before
        sharded.scores(vectors[:1], np.array([[45]]))


def test_calls_that_are_of_no_use_any_more_are_given_up(vectors: np.ndarray) -> None:
    shards = local_shards("minilm", (40, 100))
    shards[0].replicas[0].handle.is_lost = True
    for shard in shards[1:]:
        shard.replicas[0].handle.is_silent = True
    with pytest.raises(ShardUnavailable):
        index_over("minilm", shards).search(vectors[:2], 5)
    assert [shard.replicas[0].handle.calls[0].is_cancelled for shard in shards] == [False, True, True]


def test_a_call_goes_to_another_replica_if_one_is_lost_or_silent(store: PassageStore, vectors: np.ndarray) -> None:
    shards = local_shards("minilm", (40, 100), n_replicas=2)
    sharded, expected = index_over("minilm", shards), open_vector_index("made", "minilm", store).search(vectors[:2], 9)
    lost, silent = shards[0].replicas[1], shards[1].replicas[0]  # which are asked first
    lost.handle.is_lost = silent.handle.is_silent = True

    def note_silence() -> bool:
        silent.is_ready = False
        return False

    with cancellation_scope(note_silence):
        for _ in range(3):
            np.testing.assert_array_equal(sharded.search(vectors[:2], 9).rows, expected.rows)
    assert [len(replica.handle.calls) for shard in shards[:2] for replica in shard.replicas] == [3, 1, 1, 3]
    assert silent.handle.calls[0].is_cancelled
    assert not lost.is_ready
    with cancellation_scope(deadline=time.monotonic()):  # what is there is taken, however late it is
        sharded.search(vectors[:2], 9)


def test_silence_ends_a_search_in_time_or_when_nobody_waits(vectors: np.ndarray) -> None:
    shards = local_shards("minilm", (40,))
    sharded, unsearched = index_over("minilm", shards), set[UnsearchedRows]()
    shards[1].replicas[0].handle.is_silent = True
    with cancellation_scope(lambda: True), pytest.raises(DeadlineExceeded, match="nobody waits"):
        sharded.search(vectors[:2], 5)
    with cancellation_scope(deadline=time.monotonic() + 0.4), pytest.raises(ShardUnavailable, match=r"there was no answer within 0\.3 s"):
        sharded.search(vectors[:2], 5)
    with cancellation_scope(deadline=time.monotonic() + 0.1, unsearched=unsearched):
        sharded.search(vectors[:2], 5)
    assert unsearched == {UnsearchedRows("minilm", 40, 150)}
    assert all(call.is_cancelled for call in shards[1].replicas[0].handle.calls)


def test_ranges_make_up_all_rows() -> None:
    assert equal_ranges(10, 3) == [range(0, 3), range(3, 6), range(6, 10)]
    assert equal_ranges(2, 4) == [range(0, 0), range(0, 1), range(1, 1), range(1, 2)]


def test_replicas_are_asked_in_turn_but_for_those_that_are_lost() -> None:
    replicas = [Replica(None, is_ready=number != 1) for number in range(3)]
    shard = Shard(0, {}, replicas)
    assert {next(shard.ready_replicas()) for _ in range(6)} == {replicas[0], replicas[2]}
    assert all(set(shard.ready_replicas()) == {replicas[0], replicas[2]} for _ in range(3))
    untried = shard.ready_replicas()
    next(untried)
    replicas[0].is_ready = replicas[2].is_ready = False
    assert next(untried, None) is None


def test_actors_on_a_node_share_its_processors() -> None:
    code = (
        "import os\nfrom wikidx.retrievers.cluster.shard import ShardActor\nfrom wikidx.base.machine.threads import n_threads\n"
        "all_of_them = n_threads()\nShardActor([], '/nowhere', all_of_them)\n"
        "print(all_of_them, n_threads(), os.environ['OMP_NUM_THREADS'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.stdout.split() == [str(n_threads()), "1", "1"], done.stderr
