"""Full disks, and homes that cannot be written."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.faults.commands import ENCODER, Finished, idx, wait_for_end
from tests.faults.conftest import KINDS, QUERIES, check_whole, path_of
from tests.faults.test_servers import served
from tests.retrievers.server.serving import ask
from wikidx.base.artifacts.building import staging_path
from wikidx.base.artifacts.manifest import is_finished
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.corpora.known.custom import ReadOptions, custom_corpus
from wikidx.indexer.build import build_index

pytestmark = pytest.mark.slow  # processes that are killed and started again: make test-full

PARTS = ("passages", "bm25", ENCODER, *(f"{ENCODER}-{kind}" for kind in KINDS))


def build_part(part: str, source: Path) -> None:
    """Build one part from its inputs, without the command line's estimate, which refuses a build that would fill the disk."""
    if part == "passages":
        build_store(custom_corpus(source, "mine", ReadOptions()), StoreOptions())
    else:
        build_index("mine", part, open_store("mine"))


def put_what_it_needs(part: str, whole_home: Path) -> int:
    """Copy the inputs of a part from a complete corpus; return the size of the part in bytes."""
    needed = {"passages": (), "bm25": ("passages",), ENCODER: ("passages",)}.get(part, ("passages", ENCODER))
    home = Path(os.environ["IDX_HOME"])
    for name in needed:
        shutil.copytree(whole_home / path_of(name).relative_to(home), path_of(name))
    return sum(file.stat().st_size for file in (whole_home / path_of(part).relative_to(home)).iterdir())


def check_refused(refused: Finished, part: str) -> None:
    """Check that the error names the file and a remedy, and that nothing is left that could pass for finished."""
    assert f"work on {path_of(part)} has stopped: " in refused.error or str(staging_path(path_of(part))) in refused.error
    assert os.strerror(errno.ENOSPC).lower() in refused.error.lower()
    assert "free space there and run the same command again" in refused.error
    assert not path_of(part).exists()


@pytest.mark.parametrize("part", ["passages", "bm25", f"{ENCODER}-ivf"])  # written by LMDB, by idx and by FAISS
def test_a_full_disk_is_reported_and_the_build_resumes_when_there_is_room(
    part: str, small_disk: Path, whole_home: Path, source: Path
) -> None:
    n_bytes = put_what_it_needs(part, whole_home)
    ballast = small_disk / "ballast"
    with ballast.open("wb") as file:
        n_free = shutil.disk_usage(small_disk).free
        file.write(bytes(n_free - n_bytes // 2))
    check_refused(wait_for_end(build_part, part, source), part)
    ballast.unlink()
    assert wait_for_end(build_part, part, source).status == 0
    check_whole(whole_home, part)


def test_a_read_only_home_is_searched_checked_and_served_but_not_built_in(small_disk: Path, whole_home: Path, source: Path) -> None:
    shutil.copytree(whole_home / "mine", small_disk / "mine")
    searched = ("bm25", f"{ENCODER}-ivf")
    before = {part: idx("search", "mine", *QUERIES, "--json", "--retriever", part).out for part in searched}
    subprocess.run(["mount", "-o", "remount,ro", small_disk.parent], check=True)
    for command in (
        ["build", "mine", "--bm25", "--force"],
        ["build", source, "--name", "other"],
        ["build", "mine", "--encoder", ENCODER, "--index", "ivf", "--force"],
        ["remove", "mine", "--yes"],
    ):
        assert os.strerror(errno.EROFS) in idx(*command).error
    assert {part: idx("search", "mine", *QUERIES, "--json", "--retriever", part).out for part in searched} == before
    assert all(map(is_finished, map(path_of, PARTS)))
    assert idx("check", "mine").status == idx("list").status == 0
    with served() as (_, url):
        assert ask(url, "/v1/search", {"queries": [*QUERIES]}).json["rankings"][0]
