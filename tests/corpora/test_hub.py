"""Data sets of Hugging Face are read from a folder of their form, which their own library downloads."""

from __future__ import annotations

from pathlib import Path

import huggingface_hub
import pandas as pd
import pytest

from wikidx.base.errors import DownloadError, InputError
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.corpora.hub import split_files
from wikidx.corpora.known.custom import ReadOptions
from wikidx.corpora.resolving import resolve

README = """---
configs:
- config_name: corpus
  data_files:
  - split: train
    path: corpus/train-*.parquet
  - split: test
    path: [corpus/test.parquet]
- config_name: other
  data_files: "other/*.parquet"
---
# A data set
"""
FILES = ("corpus/train-00000-of-00002.parquet", "corpus/train-00001-of-00002.parquet", "corpus/test.parquet", "other/a.parquet")


def make(folder: Path, readme: str = README) -> Path:
    for number, name in enumerate(FILES):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pd.DataFrame({"docid": [f"d{number}"], "passage": [f"text {number}"]}).to_parquet(folder / name)
    (folder / "README.md").write_text(readme)
    return folder


@pytest.mark.parametrize("readme", [README, "# no metadata\n"])
@pytest.mark.parametrize(("config", "split", "expected"), [("corpus", "train", FILES[:2]), ("corpus", "test", FILES[2:3])])
def test_files_are_those_of_the_split(tmp_path: Path, readme: str, config: str, split: str, expected: tuple[str, ...]) -> None:
    folder = make(tmp_path / "set", readme)
    assert split_files(folder, config, split) == [folder / name for name in expected]


@pytest.mark.parametrize(
    ("config", "split", "complaint"),
    [
        (None, None, "has corpus, other: name one of them with --config"),
        ("corpus", None, "has train, test: name one of them with --split-name"),
        ("corpus", "dev", "has train, test: name one of them with --split-name, not 'dev'"),
    ],
)
def test_a_split_that_is_in_doubt_is_asked_for(tmp_path: Path, config: str | None, split: str | None, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        split_files(make(tmp_path / "set"), config, split)
    with pytest.raises(InputError, match="has no files of dev: it has corpus/"):
        split_files(make(tmp_path / "set", "no"), None, "dev")


def test_patterns_do_not_leave_the_folder(tmp_path: Path) -> None:
    pd.DataFrame({"id": ["x"], "text": ["secret"]}).to_parquet(tmp_path / "out.parquet")
    with pytest.raises(InputError, match=r"has no file \.\./\*\.parquet"):
        split_files(make(tmp_path / "set", README.replace("other/*", "../*")), "other", None)


def test_a_data_set_is_downloaded_by_its_library(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list[tuple[str, str, Path]]()

    def download(name: str, *, repo_type: str, local_dir: Path, allow_patterns: list[str]) -> None:
        assert {"README.md", "*.parquet", "*.jsonl"} <= {*allow_patterns}
        calls.append((name, repo_type, local_dir))
        make(local_dir)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    resolved = resolve("hf://owner/My_Set", reading=ReadOptions(config="corpus", split_name="train"))
    build_store(resolved.corpus, resolved.options)
    assert calls == [("owner/My_Set", "dataset", home / "downloads" / "hf" / "owner--My_Set")]
    assert resolved.name == "my_set"
    assert [passage.id for passage in open_store("my_set").get_many(range(2))] == ["d0", "d1"]
    local = resolve(str(make(tmp_path / "set")), name="local", options=StoreOptions(), reading=ReadOptions(config="other"))
    build_store(local.corpus, local.options)
    assert [passage.id for passage in open_store("local").get_many(range(1))] == ["d3"]


def test_what_cannot_be_downloaded_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, **options: object) -> None:
        raise OSError("no\nnetwork")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(DownloadError, match="hf://a/b cannot be downloaded: no network"):
        resolve("hf://a/b")
    with pytest.raises(InputError, match="hf://a is no data set of Hugging Face: write hf://OWNER/NAME"):
        resolve("hf://a")
