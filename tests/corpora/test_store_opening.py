from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from wikidx.corpora.build import open_store, store_path
from wikidx.corpora.errors import ArtifactCorrupt
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore

Build = Callable[..., PassageStore]


@pytest.fixture
def large(build: Build) -> list[Passage]:
    """Passages of megabytes in all, which no phrase makes shorter."""
    rng = np.random.default_rng(5)
    passages = [Passage(str(n), f"title {n}", rng.bytes(3000).hex()) for n in range(3000)]
    build(passages)
    return passages


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs the list of mapped files that Linux has")
def test_opening_a_store_does_not_read_its_passages(large: list[Passage]) -> None:
    file = store_path("made") / "passages.lmdb"

    def kilobytes_in_memory() -> int:
        maps = re.findall(r"^[0-9a-f]+-.* (\S+)\n(?:[A-Z].*\n)*?Rss: +(\d+) kB", Path("/proc/self/smaps").read_text(), re.MULTILINE)
        return sum(int(resident) for path, resident in maps if path == str(file.resolve()))

    store = open_store("made")
    assert file.stat().st_size > 8 << 20
    opened = kilobytes_in_memory()
    assert opened < 1024
    assert store.get_many(range(3000)) == large
    assert kilobytes_in_memory() > opened + 4096


@pytest.mark.parametrize("column", [1, 2])
def test_a_wrong_place_of_a_batch_is_an_error(large: list[Passage], column: int) -> None:
    checks = store_path("made") / "checks.json"
    content = json.loads(checks.read_bytes())
    content["batches"][0][column] -= 8
    checks.write_text(json.dumps(content))
    with pytest.raises(ArtifactCorrupt, match=r"checks\.json is corrupt"):
        open_store("made")
