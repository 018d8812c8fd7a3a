"""Whatever becomes of its files, an artifact gives the same answer or an error; whenever its build is killed, the next one ends alike."""

from __future__ import annotations

import functools
import gc
import os
import random
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import file_limit
from tests.contracts.artifacts import ARTIFACTS, ENCODER, Artifact, build_all, using, write_sources
from tests.fuzz.mutating import read_or_refuse
from wikidx.base.artifacts.building import INTERMEDIATE, staging_path
from wikidx.base.artifacts.manifest import MANIFEST, load_manifest, verify_files
from wikidx.base.errors import ArtifactCorrupt, ArtifactMismatch, StorageError
from wikidx.base.machine.threads import limit_threads
from wikidx.base.progress import Progress, silent
from wikidx.corpora.store.layout import TEXT_KEYS

of_each_kind = pytest.mark.parametrize("artifact", ARTIFACTS, ids=lambda artifact: artifact.name)
of_each_builder = pytest.mark.parametrize(  # those of binary and ivf are int8's and ivfpq's
    "artifact", [one for one in ARTIFACTS if one.name not in ("minilm-binary", "minilm-ivf")], ids=lambda artifact: artifact.name
)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    write_sources(folder, 0)
    return folder


@pytest.fixture(scope="module")
def whole(sources: Path) -> Path:
    """A home with every artifact; read-only."""
    build_all(sources / "home", sources)
    return sources / "home"


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with every artifact of the same name over another corpus of as many passages; read-only."""
    folder = tmp_path_factory.mktemp("other")
    write_sources(folder, 1)
    build_all(folder / "home", folder)
    return folder / "home"


@pytest.fixture(scope="module")
def answers(whole: Path) -> dict[str, object]:
    with using(whole):
        return {artifact.name: artifact.read() for artifact in ARTIFACTS}


@pytest.fixture
def copied(whole: Path, home: Path) -> Iterator[Path]:
    """A copy of the whole home, this test's own."""
    shutil.copytree(whole, home)
    with using(home):
        yield home


def files_of(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file() and file.stat().st_size)


def put(path: Path, content: bytes | None) -> None:
    """Put another file in a file's place; the old one stays as it was for those who have mapped it."""
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_bytes(content)


def damaged(content: bytes) -> Iterator[bytes | None]:
    """Yield contents that a file may come to have: it is removed, cut off, longer, overwritten, or one bit of it is another one."""
    n_bytes, chance = len(content), random.Random(len(content))
    yield from (None, b"", content[: n_bytes // 2], content[:-1], content + b"\0", b"\xa5" * n_bytes)
    for place in (0, n_bytes - 1, chance.randrange(min(256, n_bytes)), *(chance.randrange(n_bytes) for _ in range(2))):
        yield content[:place] + bytes([content[place] ^ 1 << chance.randrange(8)]) + content[place + 1 :]


def check_refused(artifact: Artifact, path: Path, content: bytes | None) -> None:
    """Check that an artifact one of whose files has another content is refused, and that the damage is found without reading it, too."""
    manifest, whole = load_manifest(artifact.path), path.read_bytes()
    put(path, content)
    try:
        assert read_or_refuse(artifact.read, artifact.path) is None
        assert path.name == MANIFEST or not path.exists() or verify_files(artifact.path, manifest) != []
    finally:
        put(path, whole)


@of_each_kind
def test_a_damaged_file_or_one_of_another_artifact_is_refused(
    copied: Path, other: Path, answers: dict[str, object], artifact: Artifact
) -> None:
    for path in files_of(artifact.path):
        whole, strange = path.read_bytes(), (other / path.relative_to(copied)).read_bytes()
        for content in (*damaged(whole), *[strange] * (strange != whole)):
            check_refused(artifact, path, content)
    assert artifact.read() == answers[artifact.name]


@of_each_kind
def test_what_was_built_from_other_passages_is_refused(copied: Path, other: Path, artifact: Artifact) -> None:
    shutil.rmtree(artifact.path)
    shutil.copytree(other / artifact.path.relative_to(copied), artifact.path)
    read = ARTIFACTS[1] if artifact is ARTIFACTS[0] else artifact  # a store is another one's equal, but not that of its indexes
    with pytest.raises(ArtifactMismatch, match="was built over other passages .*: run 'idx build"):
        read.read()


def test_nothing_is_built_from_damaged_files(copied: Path, sources: Path) -> None:
    """Neither an index from a damaged store, nor an index of vectors from damaged ones; what was there stays."""
    for artifact in ARTIFACTS:
        if artifact.name not in ("passages", ENCODER):
            source = next(found for found in ARTIFACTS if found.name == (ENCODER if artifact.name.startswith(ENCODER) else "passages"))
            path = max(files_of(source.path), key=lambda file: file.stat().st_size)
            whole, answer = path.read_bytes(), artifact.read()
            put(path, whole[: len(whole) // 2] + bytes([*reversed(whole[len(whole) // 2 :])]))
            with pytest.raises(ArtifactCorrupt, match=path.name):
                artifact.build(sources, True, silent)
            put(path, whole)
            assert artifact.read() == answer


def test_what_is_replaced_stays_as_it_was_for_who_has_opened_it(copied: Path, other: Path, answers: dict[str, object]) -> None:
    opened = {artifact.name: artifact.open() for artifact in ARTIFACTS}
    for artifact in ARTIFACTS:
        artifact.build(other.parent, True, silent)
    assert {artifact.name: artifact.read() == answers[artifact.name] for artifact in ARTIFACTS} == dict.fromkeys(opened, False)
    assert {name: read() for name, read in opened.items()} == answers


def test_an_artifact_that_nobody_has_open_any_more_has_no_file_open(copied: Path) -> None:
    def open_files() -> int:
        gc.collect()
        return len([link for link in Path("/proc/self/fd").iterdir() if os.path.realpath(link).startswith(str(copied))])

    if not Path("/proc/self/fd").exists():
        pytest.skip("needs Linux's list of open files")
    gc.collect()
    gc.freeze()  # or each collection would visit all that has been imported
    for artifact in ARTIFACTS:
        read = artifact.open()
        read()
        assert open_files()
        del read
        assert not open_files(), artifact.name


class Killing:
    """Counts the writes of this process, and ends it with SIGKILL before the n-th."""

    def __init__(self, n: int) -> None:
        self.n_writes = 0
        self._n = n

    def count(self, *_: object) -> None:
        self.n_writes += 1
        if self.n_writes == self._n:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self, home: Path) -> None:
        """Count what the interpreter reports of files below a home, and each flush to the disk; there is no end to it."""
        is_changing = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")
        flush = os.fsync

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            if event in is_changing or (event == "open" and str(arguments[0]).startswith(str(home)) and arguments[2] & os.O_ACCMODE):
                self.count()

        def counted_flush(fd: Any) -> None:  # noqa: ANN401 - what os.fsync takes
            self.count()
            flush(fd)

        sys.addaudithook(hook)
        os.fsync = counted_flush


def killed_at(n: int, home: Path, build: Callable[[Progress], object]) -> int:
    """Build in a process that ends with SIGKILL before its n-th write; return 0 if it was killed, else the number of its writes."""
    pipe, other_end = os.pipe()
    child = os.fork()
    if not child:
        try:
            limit_threads(1)  # so that the n-th write is the same one every time
            killing = Killing(n)
            killing.watch(home)
            build(killing.count)
            os.write(other_end, str(killing.n_writes).encode())
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(other_end)
    with os.fdopen(pipe) as answer:
        n_writes = int(answer.read() or 0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == (0 if n_writes else -signal.SIGKILL)
    return n_writes


def everything(home: Path, artifact: Artifact) -> tuple[object, ...]:
    """Return what is read of an artifact, the contents of its files but the manifest, and all paths of the home but locks."""
    contents = {file.name: file.read_bytes() for file in files_of(artifact.path) if file.name != MANIFEST}
    return artifact.read(), contents, sorted(str(path.relative_to(home)) for path in home.rglob("*") if ".locks" not in path.parts)


def check_resumed(artifact: Artifact, sources: Path, n: int, *, replaces: bool) -> None:
    """Build with a kill before the n-th write, which leaves the old artifact, the new one or none; then build again, to the same bytes."""
    home = Path(os.environ["IDX_HOME"])
    expected = everything(home, artifact)
    if not replaces:
        shutil.rmtree(artifact.path)
    assert killed_at(n, home, lambda progress: artifact.build(sources, replaces, progress)) == 0
    found = read_or_refuse(artifact.read, artifact.path)
    assert found == expected[0] or (found is None and not replaces), n
    artifact.build(sources, replaces, silent)
    assert everything(home, artifact) == expected, n


@functools.cache
def count_writes(artifact: Artifact, sources: Path, *, replaces: bool) -> int:
    """Return the number of writes of a build, which is the same in every home."""
    if not replaces:
        shutil.rmtree(artifact.path)
    return killed_at(0, Path(os.environ["IDX_HOME"]), lambda progress: artifact.build(sources, replaces, progress))


@of_each_builder
@pytest.mark.parametrize("replaces", [False, True], ids=["new", "replacing"])
def test_a_killed_build_resumes_to_the_same_bytes(copied: Path, sources: Path, artifact: Artifact, replaces: bool) -> None:
    n_writes = count_writes(artifact, sources, replaces=replaces)
    for n in (n_writes // 2, n_writes) if replaces else (n_writes // 3, n_writes * 2 // 3):
        check_resumed(artifact, sources, n, replaces=replaces)


@pytest.mark.exhaustive
@pytest.mark.slow  # minutes
@of_each_kind
@pytest.mark.parametrize("replaces", [False, True], ids=["new", "replacing"])
def test_a_build_killed_before_any_write_resumes_to_the_same_bytes(copied: Path, sources: Path, artifact: Artifact, replaces: bool) -> None:
    for n in range(1, count_writes(artifact, sources, replaces=replaces) + 1):
        check_resumed(artifact, sources, n, replaces=replaces)


LEFTOVERS: tuple[Callable[[bytes], bytes | None], ...] = (
    lambda content: None,
    lambda content: b"",
    lambda content: content[: len(content) // 2],
    lambda content: b"\xa5" * len(content),
)


@of_each_builder
@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=[pytest.mark.exhaustive, pytest.mark.slow]) for n in (1, 2, 3))])
def test_a_build_resumed_over_damaged_files_ends_in_the_same_bytes(copied: Path, sources: Path, artifact: Artifact, first: int) -> None:
    """Each file is damaged in another way; in every way in the exhaustive cases."""
    expected = everything(copied, artifact)
    n = count_writes(artifact, sources, replaces=False) * 2 // 3
    shutil.rmtree(artifact.path)
    assert killed_at(n, copied, lambda progress: artifact.build(sources, False, progress)) == 0
    staging = staging_path(artifact.path)
    left = Path(shutil.move(staging, copied.with_name("left")))
    names = sorted((file.relative_to(left) for file in files_of(left)), key=lambda name: name.parts[0] != INTERMEDIATE)
    for number, name in enumerate(names[:7], first + ARTIFACTS.index(artifact)):  # the rest of them is written anew in any case
        damage = LEFTOVERS[number % len(LEFTOVERS)]
        if damage is LEFTOVERS[-1] and name.name == TEXT_KEYS:
            continue  # nothing tells keys from others before the store is finished
        shutil.copytree(left, staging)
        put(staging / name, damage((left / name).read_bytes()))
        artifact.build(sources, False, silent)
        assert everything(copied, artifact) == expected, name
        shutil.rmtree(artifact.path)


@of_each_builder
def test_a_build_that_may_not_write_is_told_what_to_do_and_resumes(copied: Path, sources: Path, artifact: Artifact) -> None:
    expected = everything(copied, artifact)
    largest = max(file.stat().st_size for file in files_of(artifact.path))
    shutil.rmtree(artifact.path)
    refusal = "File too large.*; finished parts are kept: raise the limit of file sizes .ulimit -f. and run the same command again"
    with file_limit(largest // 2), pytest.raises(StorageError, match=f"^work on {artifact.path} has stopped: {refusal}$"):
        artifact.build(sources, False, silent)
    assert not artifact.path.exists()
    artifact.build(sources, False, silent)
    assert everything(copied, artifact) == expected
