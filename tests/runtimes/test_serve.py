"""``idx serve`` as a separate process: output, start-up time, signals, several processes, replaced files."""

from __future__ import annotations

import http.client
import json
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from tests.conftest import ROOT, corpus_of
from tests.retrievers.conftest import some_passages
from tests.retrievers.retrieving import at_home, build_corpus
from tests.retrievers.server.serving import ask, wait_until
from tests.runtimes.command_line import IDX, Command
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.corpora.passage import Passage
from wikidx.indexer.build import build_index
from wikidx.retrievers import SearchOptions
from wikidx.retrievers.client import RemoteSearcher
from wikidx.retrievers.errors import Unauthorized
from wikidx.retrievers.opening import open_searcher

pytestmark = pytest.mark.slow  # a server started for each test: a minute


class Served(NamedTuple):
    """A running ``idx serve``."""

    process: subprocess.Popen[str]
    url: str
    said: list[str]
    output: Path  # what it has written to standard output: a file, because a pipe that nobody reads fills up


@contextmanager
def idx_serve(*arguments: object, until_ready: bool = True, **environment: str) -> Iterator[Served]:
    """Run ``idx serve`` on a free port; it is ended if the test has not."""
    command = [*IDX, "serve", *map(str, arguments), "--port", "0"]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    with tempfile.NamedTemporaryFile(delete=False) as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=variables)
    assert process.stderr is not None
    said = [process.stderr.readline()]
    reading = threading.Thread(target=lambda: said.extend(process.stderr or ()))
    reading.start()
    try:
        found = re.search(r"http://\S+", said[0])
        assert found, said
        served = Served(process, found[0], said, Path(output.name))
        if until_ready:
            wait_until(lambda: process.poll() is not None or ask(served.url, "/ready").status == 200)
        yield served
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(30)
        reading.join()
        os.unlink(output.name)
        process.stderr.close()
    assert not [line for line in said if "Traceback" in line], said


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with at_home(tmp_path_factory.mktemp("served") / "home") as home:
        build_corpus("made", some_passages(100), "bm25")
        return home


@pytest.fixture
def made(built: Path, home: Path) -> Path:
    shutil.copytree(built, home)
    return home


def children(served: Served) -> list[int]:
    """Return the processes of a server."""
    path = Path(f"/proc/{served.process.pid}/task/{served.process.pid}/children")
    if not path.exists():
        pytest.skip("needs /proc to find the processes")
    return [int(child) for child in path.read_text().split()]


def test_a_server_without_an_index_ends_with_the_command_that_builds_it(made: Path, idx: Command) -> None:
    with idx_serve("made", "-r", "e5", until_ready=False) as served:
        assert served.process.wait(60) == 2
    assert served.said[-1].startswith("error: ")
    assert "idx build made --encoder e5" in served.said[-1]


def test_it_is_there_at_once_says_what_it_serves_and_ends_when_told(made: Path, idx: Command) -> None:
    with idx_serve("made", until_ready=False) as served:
        assert ask(served.url, "/health").json == {"alive": True}  # before it is ready
        assert ask(served.url, "/retrieve", {"queries": ["fox"], "top_k": 1}).status == 200
        wait_until(lambda: ask(served.url, "/ready").status == 200)
        (line,) = idx("search", "made", "fox", "--url", served.url, "--json", "-k", "2").splitlines()[:1]
        remote = idx("search", "made", "fox", "whale", "--url", served.url, "--json")
        assert line == "{"
        assert remote == idx("search", "made", "fox", "whale", "--json")
        assert "unknown retriever 'minilm'" in idx("search", "made", "fox", "-r", "minilm", "--url", served.url, status=2)
        port = urlsplit(served.url).port
        assert f"cannot listen on 127.0.0.1:{port} (Address already in use)" in idx("serve", "made", "--port", port, status=2)
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(10) == 0
        log = [json.loads(line) for line in served.output.read_text().splitlines()]
    assert served.said[0] == f"listening on {served.url} (search page: /, API: /openapi.json)\n"
    assert served.said[1] == "serving 'made' by bm25\n"
    assert re.fullmatch(r"ready after \d+\.\d s\n", served.said[2])
    assert [entry["ignored"] for entry in log if entry["path"] == "/retrieve"] == ["'top_k': did you mean 'topk'?"]
    searches = [entry for entry in log if entry["path"] == "/v1/search"]
    assert [(entry["status"], entry.get("queries"), entry.get("corpus")) for entry in searches] == [
        (200, 1, "made"),
        (200, 2, "made"),
        (404, None, None),
    ]
    assert set(searches[0]) == {"time", "client", "method", "path", "status", "bytes", "ms", "process", "corpus", "retriever", "queries"}
    assert "cannot be reached" in idx("search", "made", "fox", "--url", served.url, status=2)


@pytest.mark.parametrize(("workers", "n_clients", "n_queries"), [(2, 8, 1), (1, 60, 64)])
def test_sigterm_under_load_loses_no_request(made: Path, workers: int, n_clients: int, n_queries: int) -> None:
    """Threads ask one search after the other; every request on an open connection is answered until the server stops listening."""
    expected = {word: [hit.row for hit in open_searcher("made").search([word])[0]] for word in ("fox", "whale")}
    answered, lost = Counter[int](), list[str]()

    def ask_until_it_ends(url: str, number: int) -> None:
        where = urlsplit(url)
        connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=30)
        word = ("fox", "whale")[number % 2]
        while True:
            try:
                connection.connect()
            except (ConnectionRefusedError, ConnectionResetError):  # nobody listens any more
                break
            try:
                closes = False
                while not closes:
                    connection.request("POST", "/v1/search", json.dumps({"queries": [word] * n_queries}))
                    response = connection.getresponse()
                    rows = [hit["row"] for hit in json.loads(response.read())["rankings"][0]]
                    closes = response.will_close or bool(
                        select.select([connection.sock], [], [], 0)[0]
                    )  # closed while idle: pools look, too
                    answered[number] += rows == expected[word]
            except BrokenPipeError:  # closed while idle, after the look at it: nobody has read the request, and pools send it again
                pass
            except (OSError, http.client.HTTPException) as error:
                lost.append(repr(error))
            connection.close()

    with idx_serve("made", "--workers", workers, "--no-access-log") as served:
        threads = [threading.Thread(target=ask_until_it_ends, args=(served.url, number)) for number in range(n_clients)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(+answered) == len(threads) and answered.total() > 50, 120)
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(20) == 0
        for thread in threads:
            thread.join()
    assert not lost


def test_several_processes_share_a_port_and_count_together(made: Path) -> None:
    with idx_serve("made", "--workers", 3) as served:
        assert ask(served.url, "/ready").json["processes"] == {"ready": 3, "total": 3}
        for n in range(30):
            assert ask(served.url, "/v1/search", {"queries": [f"number {n}"]}).status == 200
        lines = ask(served.url, "/metrics").body.decode().splitlines()
        assert 'idx_requests_total{path="/v1/search",status="200"} 30.0' in lines
        assert 'idx_batch_queries_sum{corpus="made",retriever="bm25"} 30.0' in lines
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(10) == 0
        processes = {json.loads(line)["process"] for line in served.output.read_text().splitlines()}
    assert 1 <= len(processes) <= 3
    assert sum("ready after" in line for line in served.said) == 1


def test_long_answers_are_sent_as_they_are_written(home: Path) -> None:
    """The answer is never whole in the server's memory, however slowly it is read."""
    build_corpus("made", [Passage(f"p{n}", "", f"fox {n} " + f"word{n} " * 2000) for n in range(50)], "bm25")
    body = json.dumps({"queries": [f"fox {n}" for n in range(150)], "k": 10}).encode()
    with idx_serve("made", "--no-access-log") as served:
        status = Path(f"/proc/{served.process.pid}/status")
        if not status.exists():
            pytest.skip("needs /proc to measure memory")
        ask(served.url, "/v1/search", {"queries": ["fox"], "k": 50})
        where = urlsplit(served.url)
        connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=30)
        before = peak_bytes(status)
        connection.request("POST", "/v1/search", body)
        response = connection.getresponse()
        pieces = [response.read(1 << 16)]
        time.sleep(0.3)  # in which a server that does not wait for its reader would write everything
        pieces += iter(lambda: response.read(1 << 16), b"")
        connection.close()
        grown = peak_bytes(status) - before
    rankings = json.loads(b"".join(pieces))["rankings"]
    assert [len(ranking) for ranking in rankings] == [10] * 150
    n_bytes = sum(map(len, pieces))
    assert n_bytes > 15_000_000
    assert grown < n_bytes / 2


def peak_bytes(status: Path) -> int:
    """The most memory that a process has had, without mapped files."""
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return 1024 * (int(fields["VmHWM"].split()[0]) - int(fields["RssFile"].split()[0]))


def test_a_process_that_is_killed_is_replaced_and_no_search_waits_for_it(made: Path) -> None:
    """The other process answers; who prefers not to wait is never told that an index is being opened."""
    statuses = Counter[int | str]()

    def ask_until(end: threading.Event, url: str) -> None:
        while not end.is_set():
            try:
                statuses[ask(url, "/v1/search", {"queries": ["fox"]}, headers={"Prefer": "wait=0"}).status] += 1
            except (OSError, http.client.HTTPException):  # its process was killed
                statuses["lost"] += 1

    with idx_serve("made", "--workers", 2, "--no-access-log") as served:
        killed = children(served)[0]
        end = threading.Event()
        threads = [threading.Thread(target=ask_until, args=(end, served.url)) for _ in range(8)]
        for thread in threads:
            thread.start()
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: any("has ended with status -9" in line for line in served.said))
        wait_until(lambda: ask(served.url, "/ready").status == 503)
        n_before = statuses[200]
        wait_until(lambda: ask(served.url, "/ready").status == 200)
        n_meanwhile = statuses[200] - n_before
        end.set()
        for thread in threads:
            thread.join()
        with RemoteSearcher(served.url) as remote:
            assert remote.search(["fox"])[0]
    assert statuses.keys() <= {200, "lost"}
    assert statuses["lost"] <= len(threads)
    assert n_meanwhile > len(threads)


@pytest.mark.parametrize("is_gone", [False, True])
def test_processes_go_on_alone_when_the_files_are_others_by_now(made: Path, is_gone: bool) -> None:
    """All processes of a server serve the same, and a process that could not open the files does not take the others along."""
    with idx_serve("made", "--workers", 2, "--no-access-log") as served:
        before = ask(served.url, "/v1/search", {"queries": ["fox"]}).json
        (made / "made").rename(made / "old")
        if not is_gone:
            build_corpus("made", [Passage("new", "New", "fox")], "bm25")
        os.kill(children(served)[0], signal.SIGKILL)
        reason = "run 'idx build made'" if is_gone else "'passages' of 'made' has been replaced since the server was started: restart it"
        expected = "no other process is started, and 1 continue: "
        wait_until(lambda: any(line.startswith(expected) and reason in line for line in served.said), 60)
        for _ in range(20):
            assert ask(served.url, "/v1/search", {"queries": ["fox"]}).json == before
        assert ask(served.url, "/ready").json["processes"] == {"ready": 1, "total": 2}
        os.kill(children(served)[0], signal.SIGKILL)
        assert served.process.wait(30) == 2
    assert served.said[-1].startswith("error: ")
    assert reason in served.said[-1]


def test_who_reads_too_slowly_does_not_hold_up_the_end(made: Path) -> None:
    body = json.dumps({"queries": [f"number {n}" for n in range(2_000)], "k": 100}).encode()
    with idx_serve("made", "--deadline", 2, "--no-access-log") as served:
        where = urlsplit(served.url)
        connections = [http.client.HTTPConnection(where.hostname or "", where.port, timeout=30) for _ in range(2)]
        for connection in connections:
            connection.request("POST", "/v1/search", body)
        slow, _ = [connection.getresponse() for connection in connections]  # the other one is not read at all
        served.process.send_signal(signal.SIGTERM)
        while served.process.poll() is None:
            slow.read(1 << 16)
            time.sleep(0.1)
        assert served.process.returncode == 0
        for connection in connections:
            connection.close()


def test_files_replaced_on_disk_are_served_as_they_were(made: Path) -> None:
    with idx_serve("made") as served, RemoteSearcher(served.url) as remote:
        options = SearchOptions(k=100, dedup="text", rerank="primary")
        before = remote.search(["fox whale", "number 7"], options)
        state = ask(served.url, "/v1/indexes").json["corpora"][0]
        assert (state["replaced"], [index["replaced"] for index in state["indexes"]]) == (False, [False])
        build_store(corpus_of([Passage("new", "New", "nothing like the others")]), StoreOptions(replace=True, rebuild=True))
        build_index("made", "bm25", open_store("made"), force=True)
        assert remote.search(["fox whale", "number 7"], options) == before
        assert ask(served.url, "/v1/corpora/made/passages?id=p7").json["passages"][0]["title"] == some_passages(8)[7].title
        state = ask(served.url, "/v1/indexes").json["corpora"][0]
        assert (state["replaced"], state["passages"]["replaced"], state["indexes"][0]["replaced"]) == (True, True, True)


def test_a_key_is_wanted_where_there_is_one(made: Path) -> None:
    with idx_serve("made", IDX_API_KEY="top secret") as served:
        for path in ("/v1/indexes", "/metrics", "/v1/corpora/made/passages?id=1", "/nothing"):
            assert ask(served.url, path).status == 401
        assert ask(served.url, "/").status == ask(served.url, "/openapi.json").status == 200  # no data, and the page links to it
        for header in (
            {},
            {"authorization": "Bearer wrong"},
            {"x-api-key": "top secre"},
            {"x-api-key": ""},
            {"authorization": "Bearer"},
            {"authorization": "top secret"},
            {"authorization": "Basic top secret"},
        ):
            refused = ask(served.url, "/v1/search", {"queries": ["fox"]}, headers=header)
            assert (refused.status, refused.json["error_type"]) == (401, "Unauthorized")
        for header in (
            {"authorization": "Bearer top secret"},
            {"authorization": "bearer top secret"},
            {"x-api-key": "top secret"},
            {"x-api-key": "wrong", "authorization": "BEARER top secret"},
        ):
            assert ask(served.url, "/v1/search", {"queries": ["fox"]}, headers=header).status == 200
        assert ask(served.url, "/health").status == 200
        with RemoteSearcher(served.url, api_key="top secret") as remote, RemoteSearcher(served.url) as stranger:
            assert remote.search(["fox"])[0]
            with pytest.raises(Unauthorized, match="this server requires its API key"):
                stranger.search(["fox"])


def test_it_ends_while_it_still_opens(made: Path) -> None:
    with idx_serve("made", until_ready=False) as served:
        assert ask(served.url, "/health").status == 200
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(20) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-r", "minilm", "--workers", "2"], b"idx build made --encoder minilm"),
        (["--ray", "local", "--workers", "2"], b"one process answers"),
    ],
)
def test_what_several_processes_cannot_serve_is_one_line(made: Path, arguments: list[str], message: bytes) -> None:
    """Others are held by ``command_errors.txt``."""
    ran = subprocess.run([*IDX, "serve", "made", "--port", "0", *arguments], capture_output=True, check=False, cwd=ROOT, timeout=120)
    assert (ran.returncode, b"Traceback" in ran.stderr) == (2, False)
    assert ran.stderr.splitlines()[-1].startswith(b"error: ")
    assert message in ran.stderr.splitlines()[-1]
