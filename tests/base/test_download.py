"""``wikidx.base.net.download`` against a real local server, which misbehaves as configured by each test."""

import contextlib
import hashlib
import json
import os
import random
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.base.served_file import CONTENT, Answer, Site, respond
from tests.loopback import listening
from wikidx.base.errors import DownloadError, InputError, StorageError
from wikidx.base.net.download import ATTEMPTS, SourceFile, apply_mirror, download, verify

OTHER = random.Random(8).randbytes(2_900_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
MD5 = hashlib.md5(CONTENT).hexdigest()
OTHER_SHA256 = hashlib.sha256(OTHER).hexdigest()


@pytest.fixture
def site() -> Iterator[Site]:
    it = Site()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:  # the name http.server looks for
            it.requests.append((self.path, dict(self.headers)))
            with contextlib.suppress(ConnectionError):  # the client may have hung up
                respond(self, it, it.answers.pop(0) if it.answers else it.always)
            self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            """Keep the test's output clean."""

    with listening(Handler) as url:
        it.port = urlsplit(url).port or 0
        yield it


def fetch(source: SourceFile, folder: Path) -> bytes:
    return download(source, folder, pause_s=0.001).path.read_bytes()


def test_a_file_is_fetched_and_recorded(site: Site, tmp_path: Path) -> None:
    folder = tmp_path / "made" / "here"
    assert fetch(site.source(n_bytes=len(CONTENT), md5=MD5.upper(), sha256=SHA256), folder) == CONTENT
    assert sorted(os.listdir(folder)) == ["a.gz", "a.gz.json"]
    record = json.loads((folder / "a.gz.json").read_text())
    assert (record["url"], record["bytes"], record["sha256"], record["md5"]) == (site.url, len(CONTENT), SHA256, MD5.upper())
    assert fetch(site.source(n_bytes=len(CONTENT)), folder) == CONTENT
    assert site.ranges() == [None]


def test_progress_is_monotone_and_ends_at_the_total(site: Site, tmp_path: Path) -> None:
    site.answers = [Answer(n_sent=1_500_000)]
    calls: list[tuple[int, int | None]] = []
    download(site.source(), tmp_path, progress=lambda done, total: calls.append((done, total)), pause_s=0.001)
    done = [call[0] for call in calls]
    assert done == sorted(done)
    assert calls[-1] == (len(CONTENT), len(CONTENT))
    assert {total for _, total in calls} == {len(CONTENT)}
    assert 3 <= len(calls) <= 10  # not once for every packet


HALF = Answer(n_sent=1_000_000)
REST = "bytes=1000000-"
WHOLE = (None, None)
ARRIVALS = [  # the file's version, answers before the right ones, and the Range and If-Range of each request
    pytest.param('"v1"', [HALF], [WHOLE, (REST, '"v1"')], id="a connection that is closed"),
    *(
        pytest.param('"v1"', [Answer(status=status)] * (ATTEMPTS - 1), [WHOLE] * ATTEMPTS, id=f"status {status}")
        for status in (429, 500, 503)
    ),
    pytest.param('"v1"', [HALF, Answer(ignores_range=True)], [WHOLE, (REST, '"v1"')], id="all of it again"),
    *(
        pytest.param('"v1"', [HALF, Answer(content_range=answered)], [WHOLE, (REST, '"v1"'), WHOLE], id=f"the range {answered}")
        for answered in ("bytes 5-2999999/3000000", "x")
    ),
    pytest.param(
        '"v1"', [HALF, Answer(headers={"ETag": '"v2"'})], [WHOLE, (REST, '"v1"'), WHOLE], id="another version in spite of If-Range"
    ),
    *(pytest.param(etag, [HALF], [WHOLE, WHOLE], id=f"the ETag {etag}") for etag in ('W/"weak"', '"\xe9"', None)),
    *(
        pytest.param('"v1"', [Answer(status=status, headers={name: value})], [WHOLE] * n_requests, id=f"digits without end in {name}")
        for name, status, value, n_requests in (
            ("Content-Length", 200, "0" * 5_000, 1),
            ("Content-Range", 200, f"bytes 1-2/{'0' * 5_000}", 1),
            ("Retry-After", 503, "0" * 5_000, 2),
        )
    ),
]


@pytest.mark.parametrize(("etag", "answers", "asked"), ARRIVALS)
def test_a_file_arrives_whatever_the_server_does_first(
    site: Site, tmp_path: Path, etag: str | None, answers: list[Answer], asked: list[tuple[str | None, str | None]]
) -> None:
    site.etag, site.answers = etag, list(answers)
    assert fetch(site.source(), tmp_path) == CONTENT
    assert [(headers.get("Range"), headers.get("If-Range")) for _, headers in site.requests] == asked


def test_a_connection_that_is_reset_is_resumed(site: Site, tmp_path: Path) -> None:
    site.answers = [Answer(n_sent=1_000_000, resets=True)]  # what it leaves of the last packets is the kernel's affair
    assert fetch(site.source(sha256=SHA256), tmp_path) == CONTENT


def test_attempts_are_counted_only_while_nothing_arrives(site: Site, tmp_path: Path) -> None:
    site.answers = [Answer(n_sent=150_000)] * 3 * ATTEMPTS
    assert fetch(site.source(), tmp_path) == CONTENT
    assert len(site.requests) == 3 * ATTEMPTS + 1


GIVEN_UP = rf"the connection ended after \d+ of 3000000 bytes \({ATTEMPTS} tries\)"
REFUSALS = [  # what the server always answers, the published size, the error, and the number of requests
    pytest.param(Answer(n_sent=1), None, GIVEN_UP, ATTEMPTS, id="one byte at a time"),
    pytest.param(Answer(n_sent=1000, ignores_range=True), None, GIVEN_UP, ATTEMPTS, id="the same beginning again and again"),
    pytest.param(Answer(n_declared=3_000_010), 3_000_010, "expected 3000010 bytes, got 3000000", 2, id="too short"),
    pytest.param(Answer(), 17, "has 3000000 bytes, expected 17", 1, id="another size"),
    pytest.param(Answer(chunked=True), 17, "sends more than 17 bytes.* the server has another file", 1, id="more than published"),
    *(
        pytest.param(Answer(status=status), None, rf"http://127\.0\.0\.1:\d+/dpr/a\.gz: status {status} ", 1, id=f"status {status}")
        for status in (403, 404, 410)
    ),
]


@pytest.mark.parametrize(("answer", "n_bytes", "message", "n_requests"), REFUSALS)
def test_what_is_not_the_file_is_refused(
    site: Site, tmp_path: Path, answer: Answer, n_bytes: int | None, message: str, n_requests: int
) -> None:
    site.always = answer
    with pytest.raises(DownloadError, match=message):
        fetch(site.source(n_bytes=n_bytes), tmp_path)
    assert len(site.requests) == n_requests
    assert not (tmp_path / "a.gz").exists()
    assert n_requests > 1 or list(tmp_path.iterdir()) == []


def test_what_has_arrived_before_a_server_is_given_up_is_kept(site: Site, tmp_path: Path) -> None:
    site.answers, site.always = [Answer(n_sent=1000)], Answer(n_sent=0)
    with pytest.raises(DownloadError, match=rf"a\.gz: {GIVEN_UP}; 1000 bytes are kept: run the command again"):
        fetch(site.source(), tmp_path)
    assert len(site.requests) == ATTEMPTS
    assert (tmp_path / "a.gz.part").read_bytes() == CONTENT[:1000]


@pytest.mark.parametrize("chunked", [True, False])
def test_no_more_is_written_than_an_unpublished_file_may_have(
    site: Site, tmp_path: Path, chunked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wikidx.base.net.download.MAX_UNPUBLISHED_BYTES", 2_000_000)
    site.always = Answer(chunked=chunked)
    with pytest.raises(DownloadError, match="(sends more than 2,000,000|has 3,000,000) bytes.* the server has another file"):
        fetch(site.source(), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("content", "etag"), [(CONTENT, '"v1"'), (OTHER, '"v2"')], ids=["the same file", "another file"])
def test_a_later_run_resumes_what_is_still_the_same_file(site: Site, tmp_path: Path, content: bytes, etag: str) -> None:
    site.answers = [HALF, Answer(status=404)]
    with pytest.raises(DownloadError):
        fetch(site.source(), tmp_path)
    site.content, site.etag = content, etag
    assert fetch(site.source(), tmp_path) == content
    assert site.ranges()[-1] == REST  # a new file is answered whole, because of If-Range


@pytest.mark.parametrize("is_published", [False, True])
def test_a_part_of_unknown_version_is_continued_only_if_a_checksum_will_tell(site: Site, tmp_path: Path, is_published: bool) -> None:
    (tmp_path / "a.gz.part").write_bytes(CONTENT[:1_000_000])
    assert fetch(site.source(sha256=SHA256 if is_published else None), tmp_path) == CONTENT
    assert site.ranges() == (["bytes=1000000-"] if is_published else [None])


@pytest.mark.parametrize(
    ("part", "n_bytes", "ranges"),
    [
        pytest.param(CONTENT, None, ["bytes=3000000-"], id="complete: answered with 416"),
        pytest.param(CONTENT, len(CONTENT), [], id="complete, size known: nothing to ask"),
        pytest.param(CONTENT + b"more", None, ["bytes=3000004-", None], id="too long: starts over"),
    ],
)
def test_a_part_that_lacks_nothing(site: Site, tmp_path: Path, part: bytes, n_bytes: int | None, ranges: list[str | None]) -> None:
    (tmp_path / "a.gz.part").write_bytes(part)
    assert fetch(site.source(n_bytes=n_bytes, sha256=SHA256), tmp_path) == CONTENT
    assert site.ranges() == ranges


def test_a_body_without_a_length(site: Site, tmp_path: Path) -> None:
    site.answers = [Answer(chunked=True, n_sent=1_000_000), Answer(chunked=True)]
    calls: list[tuple[int, int | None]] = []
    file = download(site.source(), tmp_path, progress=lambda done, total: calls.append((done, total)), pause_s=0.001)
    assert (file.path.read_bytes(), file.sha256, file.origin) == (CONTENT, SHA256, site.url)
    assert calls[0] == (0, None)
    assert calls[-1] == (len(CONTENT), len(CONTENT))


@pytest.mark.parametrize("algorithm", ["md5", "sha256"])
def test_wrong_bytes_are_refused_and_deleted(site: Site, tmp_path: Path, algorithm: str) -> None:
    site.content = bytes(len(CONTENT))
    right = {"md5": MD5, "sha256": SHA256}[algorithm]
    seen = hashlib.new(algorithm, site.content).hexdigest()
    source = site.source(md5=MD5) if algorithm == "md5" else site.source(sha256=SHA256)
    with pytest.raises(DownloadError, match=rf"is not a\.gz: expected {algorithm} {right}, got {seen}: fetch .* \(it was deleted"):
        fetch(source, tmp_path)
    assert sorted(os.listdir(tmp_path)) == []
    site.content = CONTENT
    assert fetch(source, tmp_path) == CONTENT


def test_retry_after_is_honoured(site: Site, tmp_path: Path) -> None:
    site.answers = [Answer(status=503, headers={"Retry-After": "1"})]
    begin = time.monotonic()
    assert fetch(site.source(), tmp_path) == CONTENT
    assert time.monotonic() - begin >= 1


def test_too_little_space_is_reported_before_anything_is_written(site: Site, tmp_path: Path) -> None:
    site.always = Answer(chunked=True)
    with pytest.raises(StorageError, match=r"has \d+\.\d{3} GB free, but a\.gz needs 1000000000\.000 GB more: free some space"):
        fetch(site.source(n_bytes=10**18), tmp_path)
    assert (tmp_path / "a.gz.part").read_bytes() == b""


def test_a_disk_that_refuses(site: Site, tmp_path: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    (tmp_path / "a.gz.part").symlink_to(full)
    with pytest.raises(
        StorageError, match=r"work on .*a\.gz has stopped: No space left on device; finished parts are kept: free space there"
    ):
        fetch(site.source(), tmp_path)
    with pytest.raises(StorageError, match="work on /dev/null/a.gz has stopped: File exists"):
        fetch(site.source(), Path("/dev/null"))


def test_a_mirror_replaces_scheme_and_host_and_another_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDX_MIRROR", "http://127.0.0.1:80/x/")
    assert apply_mirror("https://dl.fbaipublicfiles.com/dpr/a.gz?q=1") == "http://127.0.0.1:80/x/dpr/a.gz?q=1"
    monkeypatch.setenv("IDX_MIRROR", "ftp://x")
    with pytest.raises(InputError, match="IDX_MIRROR is 'ftp://x'"):
        apply_mirror("https://a/b")
    monkeypatch.delenv("IDX_MIRROR")
    assert apply_mirror("https://a/b") == "https://a/b"


def test_a_file_without_record_is_verified_and_recorded(site: Site, tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(CONTENT)
    assert fetch(site.source(md5=MD5), tmp_path) == CONTENT
    assert json.loads((tmp_path / "a.gz.json").read_text())["sha256"] == SHA256
    assert site.requests == []


def test_a_file_without_record_that_is_another_is_kept_and_refused(site: Site, tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(OTHER)
    with pytest.raises(DownloadError, match=rf"is not a\.gz: expected md5 {MD5}, got .* \(delete it first\)"):
        fetch(site.source(md5=MD5), tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["a.gz"]


def test_a_record_does_not_vouch_for_what_was_not_checked(site: Site, tmp_path: Path) -> None:
    fetch(site.source(), tmp_path)
    with pytest.raises(DownloadError, match=f"expected sha256 {'0' * 64}, got {SHA256}"):
        fetch(site.source(sha256="0" * 64), tmp_path)


def test_a_file_that_shrank_after_its_download_is_refused(site: Site, tmp_path: Path) -> None:
    download(site.source(), tmp_path).path.write_bytes(CONTENT[:-1])
    with pytest.raises(DownloadError, match=f"is not the a.gz of the first download: expected sha256 {SHA256}"):
        fetch(site.source(), tmp_path)


def test_an_unpublished_file_is_held_to_its_first_download(site: Site, tmp_path: Path) -> None:
    fetch(site.source(), tmp_path)
    (tmp_path / "a.gz").unlink()
    site.content, site.etag = OTHER, '"v2"'
    record = tmp_path / "a.gz.json"
    with pytest.raises(DownloadError, match=rf"expected sha256 {SHA256}, got {OTHER_SHA256}; delete {record} to accept the new file"):
        fetch(site.source(), tmp_path)
    assert not (tmp_path / "a.gz").exists()
    record.unlink()
    assert fetch(site.source(), tmp_path) == OTHER
    assert site.ranges() == [None, None, f"bytes={len(OTHER)}-"]  # accepted without a second transfer
    assert json.loads(record.read_text())["sha256"] == OTHER_SHA256


def test_a_corrupt_record_is_named(site: Site, tmp_path: Path) -> None:
    (tmp_path / "a.gz.json").write_text('{"url": ')
    with pytest.raises(DownloadError, match=r"a\.gz\.json is not a download record .* delete it"):
        fetch(site.source(), tmp_path)


def test_verify_a_users_own_copy(tmp_path: Path) -> None:
    own = tmp_path / "mine.gz"
    own.write_bytes(b"abc")
    abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    source = SourceFile(name="a.gz", url="https://h/a.gz", n_bytes=3, md5="900150983cd24fb0d6963f7d28e17f72", sha256=abc)
    assert verify(own, source) == abc
    with pytest.raises(DownloadError, match=r"mine\.gz is not a\.gz: expected 4 bytes, got 3: fetch it again from https://h/a\.gz"):
        verify(own, SourceFile(name="a.gz", url="https://h/a.gz", n_bytes=4))
    with pytest.raises(StorageError, match=r"work on .*none\.gz has stopped: No such file or directory"):
        verify(tmp_path / "none.gz", source)
