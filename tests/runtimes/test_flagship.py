"""The flagship commands whole, against a mirror on the loopback address that serves real rows."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
from pathlib import Path

import pytest

from tests.loopback import serving
from tests.runtimes.command_line import Command
from wikidx.base.artifacts.home import home
from wikidx.corpora.known import wikipedias


def test_idx_build_wiki2018_against_a_mirror(idx: Command, shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "mirror" / "dpr" / "wikipedia_split"
    folder.mkdir(parents=True)
    rows = folder / "psgs_w100.tsv.gz"
    shutil.copy(shared_data / "psgs_w100_rows" / "psgs_w100_subset.tsv.gz", rows)
    (published,) = wikipedias.WIKI2018.files
    served = dataclasses.replace(published, n_bytes=rows.stat().st_size, md5=hashlib.md5(rows.read_bytes()).hexdigest())
    monkeypatch.setattr(
        wikipedias, "WIKI2018", dataclasses.replace(wikipedias.WIKI2018, files=(served,), n_passages=4486, estimate=(4486, 640))
    )
    with serving(tmp_path / "mirror") as address:
        monkeypatch.setenv("IDX_MIRROR", address)
        idx("build", "wiki2018", "--dry-run")
        assert "about 4,486 passages of 640 B" in idx.err
        assert not home().exists()
        assert idx("build", "wiki2018") == "built 'wiki2018': passages (4,486 rows), bm25 (4,486 rows)\n"
    idx("build", "wiki2018", "--bm25")  # the mirror is gone, and is not needed
    (hit,) = idx.json("search", "wiki2018", "first phone with the A8 chip of Apple", "-k", "1")["passages"]
    assert (hit["rank"], len(hit["text"].split())) == (1, 100)
    idx("check", "wiki2018")
    idx("remove", "wiki2018", "--yes")
    assert [path.name for path in home().iterdir() if path.name != ".locks"] in ([], ["downloads"])
    assert not list(home().glob("downloads/*"))
