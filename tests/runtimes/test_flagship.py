"""The flagship commands whole, against a mirror on the loopback address that serves real rows."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.loopback import serving
from wikidx.base.artifacts.home import home
from wikidx.corpora.known import wikipedias
from wikidx.runtimes.cli import main


def idx(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    """Run the command line in this process, where a fixture can reach the corpus's recipe."""
    monkeypatch.setattr(sys, "argv", ["idx", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 0


def test_idx_build_wiki2018_against_a_mirror(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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
        idx(monkeypatch, "build", "wiki2018", "--dry-run")
        assert not home().exists()
        idx(monkeypatch, "build", "wiki2018")
    said = capsys.readouterr()
    assert "about 4,486 passages of 640 B" in said.err
    assert said.out == "built 'wiki2018': passages (4,486 rows), bm25 (4,486 rows)\n"
    idx(monkeypatch, "build", "wiki2018", "--bm25")  # the mirror is gone, and is not needed
    capsys.readouterr()
    idx(monkeypatch, "search", "wiki2018", "first phone with the A8 chip of Apple", "-k", "1", "--json")
    (hit,) = json.loads(capsys.readouterr().out)["passages"]
    assert (hit["rank"], len(hit["text"].split())) == (1, 100)
    idx(monkeypatch, "check", "wiki2018")
    idx(monkeypatch, "remove", "wiki2018", "--yes")
    assert [path.name for path in home().iterdir() if path.name != ".locks"] in ([], ["downloads"])
    assert not list(home().glob("downloads/*"))


INTERRUPTED = """
import os, signal
import wikidx.corpora.store.writer as writer
from wikidx.runtimes.cli import main
writer.StoreWriter.finish = lambda self: os.kill(os.getpid(), signal.SIGINT)
main()
"""


def test_ctrl_c_stops_with_130_and_the_build_goes_on_later(tmp_path: Path) -> None:
    source = tmp_path / "some.jsonl"
    source.write_text('{"id": "1", "title": "t", "text": "x"}\n')
    ran = subprocess.run([sys.executable, "-c", INTERRUPTED, "build", source], capture_output=True, check=False)
    assert (ran.returncode, b"Traceback" in ran.stderr) == (130, False)
    assert (home() / "some" / ".passages.partial").is_dir()
