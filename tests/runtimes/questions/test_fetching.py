"""Published sets of questions: fetched from a server on the loopback address, checked, converted, and read by name."""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import json
import os
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.loopback import serving
from tests.runtimes.command_line import Command
from tests.runtimes.questions.format_files import FORMAT_FILES, FormatFile, lines
from wikidx.base.errors import DownloadError, InputError
from wikidx.base.net.download import SourceFile, download
from wikidx.runtimes import questions as package
from wikidx.runtimes.questions import PublishedSet, converted_path, fetching, find_questions, read_questions, reading, sets

ABSENT = "http://127.0.0.1:1"
HOST = "http://published.example"
TWO = lines({"question": "who?", "answer": ["A"]}, {"question": "when?", "answer": ["now", "today"]}).encode()
Table = Callable[..., None]
Packed = Callable[[dict[str, bytes]], bytes]


def made(
    name: str = "made",
    url: str = f"{HOST}/files/made.jsonl",
    *,
    n: int = 2,
    format: str = "nq-open",
    sha256: str | None = None,
    members: tuple[str, ...] = (),
) -> PublishedSet:
    """Return a line of a table."""
    name, _, split = name.partition(":")
    file = SourceFile(name=url.partition("?")[0].rpartition("/")[2], url=url, sha256=sha256)
    return PublishedSet(name, split or "test", n, format, file, members, "")


def case_of(format: str) -> FormatFile:
    return next(case for case in FORMAT_FILES if case.format == format)


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Table:
    """Replace the table of published sets, and do not wait between attempts."""
    monkeypatch.setattr(fetching, "download", functools.partial(download, pause_s=0.0))

    def replace(*entries: PublishedSet) -> None:
        for module in (package, sets, reading, fetching):
            monkeypatch.setattr(module, "published_sets", lambda: entries)

    return replace


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Serve a folder in place of every host."""
    folder = tmp_path / "site"
    (folder / "files").mkdir(parents=True)
    with serving(folder) as address:
        monkeypatch.setenv("IDX_MIRROR", address)
        yield folder / "files"


def zipped(files: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return content.getvalue()


def tarred(files: dict[str, bytes], mode: str = "w") -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode=mode) as archive:  # type: ignore[call-overload]
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return content.getvalue()


def test_splits_in_one_file_come_together_and_are_recorded(site: Path, table: Table, home: Path) -> None:
    both = case_of("asqa")
    content = gzip.compress(both.content.encode())
    (site / "made.jsonl").write_bytes(content)
    dev, train = made("asqa:dev", format="asqa", n=len(both.questions)), made("asqa:train", format="asqa-train", n=1)
    table(dev, train)
    assert fetching.fetch_set(train) == [dev, train]
    assert find_questions("asqa") == find_questions("asqa:dev") == both.questions
    assert [one.id for one in find_questions("asqa:train")] == ["-1"]
    record = {"url": dev.file.url, "sha256": hashlib.sha256(content).hexdigest(), "questions": 1, "is_verified": False}
    assert json.loads((home / "questions/asqa/train.json").read_text(encoding="utf-8")) == record


def test_questions_that_a_conversion_left_behind_are_of_a_recorded_file(site: Path, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    (site / "made.jsonl").write_bytes(TWO)
    table(entry := made())
    with monkeypatch.context() as interrupted:
        interrupted.setattr(fetching, "write_questions", interrupt)
        with pytest.raises(KeyboardInterrupt):
            fetching.fetch_set(entry)
    assert converted_path(entry).with_suffix(".json").is_file()
    assert not converted_path(entry).exists()
    assert fetching.fetch_set(entry) == [entry]
    assert len(find_questions("made")) == 2


@pytest.mark.parametrize("pack", [zipped, tarred, lambda files: tarred(files, "w:gz")], ids=["zip", "tar", "tar.gz"])
def test_an_archive_writes_only_what_is_asked_for(pack: Packed, site: Path, table: Table, tmp_path: Path) -> None:
    case = case_of("2wikimultihopqa")
    aliases = {"Q_id": json.loads(case.content)[0]["answer_id"], "aliases": ["EG"], "demonyms": []}
    files = {
        "../../../evil.json": b"{}",
        f"{tmp_path}/evil.json": b"{}",
        "data/../../dev.json": case.content.encode(),
        "data/id_aliases.json": lines(aliases).encode(),
        "__MACOSX/._dev.json": b"x",
    }
    (site / "made.zip").write_bytes(pack(files))
    entry = made(url=f"{HOST}/files/made.zip", format=case.format, n=len(case.questions), members=("dev.json", "id_aliases.json"))
    table(entry)
    fetching.fetch_set(entry)
    assert [one.text for one in find_questions("made")] == [one.text for one in case.questions]
    assert "EG" in find_questions("made")[0].golden_answers
    assert not [*tmp_path.rglob("*evil*"), *tmp_path.rglob("dev.json")]


def linked() -> bytes:
    """Return an archive in which the file is a link."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        link = tarfile.TarInfo("dev.json")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return content.getvalue()


@pytest.mark.parametrize(
    ("content", "members", "reason"),
    [
        (zipped({"dev.json": TWO * 500})[:-30], True, "made.zip is corrupt"),
        (tarred({"dev.json": TWO * 500})[:4_000], True, "made.zip is corrupt"),
        (tarred({"dev.json": TWO * 500}, "w:gz")[:-20], True, "made.zip is corrupt"),
        (b"not an archive", True, "made.zip is corrupt"),
        (zipped({"other.json": TWO}), True, "made.zip has no file dev.json: not the published archive"),
        (linked(), True, "made.zip has no file dev.json"),
        (zipped({"a/dev.json": TWO, "b/dev.json": TWO}), True, "made.zip: a second 'dev.json'"),
        (TWO + TWO, False, r"made\.zip has 4 questions of 'made:test', expected 2: delete it and made\.zip\.json"),
    ],
    ids=["zip cut", "tar cut", "tar.gz cut", "text", "member missing", "link", "two members", "number of questions"],
)
def test_another_file_is_refused(content: bytes, members: bool, reason: str, site: Path, table: Table, home: Path) -> None:
    (site / "made.zip").write_bytes(content)
    entry = made(url=f"{HOST}/files/made.zip", members=("dev.json",) if members else ())
    table(entry)
    with pytest.raises(InputError, match=reason):
        fetching.fetch_set(entry)
    assert not converted_path(entry).exists()
    assert [path.name for path in (home / "downloads/questions/made").iterdir()] == ["made.zip", "made.zip.json"]


def test_a_wrong_checksum_is_refused(site: Path, table: Table) -> None:
    (site / "made.jsonl").write_bytes(TWO)
    table(entry := made(sha256="0" * 64))
    with pytest.raises(DownloadError, match=r"is not made\.jsonl: expected sha256 0{64}, got .*; or put made\.jsonl into .*/made"):
        fetching.fetch_set(entry)
    with pytest.raises(InputError, match="the questions 'made:test' have not been fetched: run 'idx questions made'"):
        find_questions("made")


def test_a_later_file_must_be_the_first(site: Path, table: Table, home: Path) -> None:
    (site / "made.jsonl").write_bytes(TWO)
    table(entry := made())
    fetching.fetch_set(entry)
    (site / "made.jsonl").write_bytes(TWO.replace(b"now", b"yes"))
    assert fetching.fetch_set(entry) == [entry]  # nothing is downloaded
    first = home / "downloads/questions/made/made.jsonl"
    first.unlink()
    with pytest.raises(DownloadError, match=r"is not the made\.jsonl of the first download"):
        fetching.fetch_set(entry)
    for path in first.parent.iterdir():
        path.unlink()
    with pytest.raises(DownloadError, match=r"made\.jsonl is not that of the first time: .*; delete .*/made/test\.json to accept"):
        fetching.fetch_set(entry)
    assert find_questions("made")[1].golden_answers == ("now", "today")
    converted_path(entry).with_suffix(".json").unlink()
    fetching.fetch_set(entry)
    assert find_questions("made")[1].golden_answers == ("yes", "today")


def test_without_a_network_the_message_says_which_file_goes_where(
    idx: Command, table: Table, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IDX_MIRROR", ABSENT)
    table(made())
    folder = home / "downloads/questions/made"
    message = idx("questions", "made", status=2)
    assert message.startswith(f"error: {ABSENT}/files/made.jsonl: ConnectionRefusedError: ")
    assert message.endswith(f"; or put made.jsonl into {folder}, and repeat the command")
    (folder / "made.jsonl").write_bytes(TWO)
    assert idx("questions", "made") == f"made:test: 2 questions in {home}/questions/made/test.jsonl\n"
    assert find_questions("made") == read_questions(folder / "made.jsonl")


def test_a_mirror_stands_for_all_hosts(idx: Command, table: Table, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = os.environ["IDX_MIRROR"]
    monkeypatch.setenv("IDX_MIRROR", ABSENT)  # also restores the variable after the test
    for name in ("one.jsonl", "two.jsonl"):
        (site / name).write_bytes(TWO)
    table(made("one", "http://first.example/files/one.jsonl"), made("two", "https://second.example/files/two.jsonl?dl=1"))
    assert [one["path"] for one in json.loads(idx("questions", "--json"))["questions"]] == [None, None]
    assert idx("questions", "one", "two", "--mirror", address).count("2 questions in") == 2
    listed = json.loads(idx("questions", "--json"))["questions"]
    assert [Path(one["path"]).read_bytes().count(b"\n") for one in listed] == [2, 2]
    assert idx("questions").splitlines()[1].split()[:4] == ["one:test", "2", "yes", "first"]


def test_runs_and_evaluations_find_a_set_by_its_name(
    idx: Command, table: Table, site: Path, script: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site / "made.jsonl").write_bytes(TWO)
    table(made("nq"))
    out = tmp_path / "out"
    run = ("run", "direct", "--questions", "nq", "--llm", script({"match": "", "text": "today"}), "--out", out)
    assert idx(*run, status=2) == "error: the questions 'nq:test' have not been fetched: run 'idx questions nq'"
    assert idx("run", "direct", "--questions", "nqq", "--out", out, status=2).endswith("of this name: did you mean 'nq'?")
    idx("questions", "nq")
    idx(*run, "--protocol", "flashrag")
    assert json.loads((out / "run.json").read_text(encoding="utf-8"))["sessions"][0]["source"]["file"] == "nq"
    scored = json.loads(idx("eval", "answers", out, "--metrics", "squad_em", "--json"))
    assert (scored["dataset"], scored["metrics"]["squad_em"]["mean"]) == ("NQ", 0.5)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nq").write_bytes(lines({"question": "mine?", "answer": ["x"]}).encode())
    assert [one.text for one in find_questions("nq")] == ["mine?"]


@pytest.mark.usefixtures("sample_home")
def test_only_retrieved_answers_are_written(idx: Command, tmp_path: Path) -> None:
    asked, out = tmp_path / "asked.jsonl", tmp_path / "kept.jsonl"
    first = {"id": "a", "question": "Which metal is liquid at room temperature?", "answer": ["mercury", "quicksilver-x"]}
    asked.write_text(lines(first, {"id": "b", "question": "Which metal is liquid?", "answer": ["quicksilver-x"]}))
    command = ("questions", asked, "--corpus", "sample", "--out", out)
    assert idx(*command) == f"{out}: 2 questions with 1 of 3 gold answers; 1 have none\n"
    assert [(one.id, one.golden_answers) for one in read_questions(out)] == [("a", ("mercury",)), ("b", ())]
    for wrong in (command[:-2], ("questions", "--corpus", "sample", "--out", out), (*command, "nq")):
        assert idx(*wrong, status=2) == "error: --corpus and --out belong together, and take one set or file of questions"
