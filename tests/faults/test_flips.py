"""A flipped bit in every file of every artefact: ``idx check`` finds it, and readers get the original data or a typed error."""

from __future__ import annotations

import json
import random
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.commands import ENCODER, Finished, idx, wait_for_end
from tests.faults.conftest import KINDS, N_PASSAGES, PARTIAL, path_of
from wikidx.base.artifacts.manifest import MANIFEST
from wikidx.corpora.build import open_store
from wikidx.corpora.store.layout import DATABASE

pytestmark = pytest.mark.slow  # processes that are killed and started again: make test-full

INDEXES = ("bm25", ENCODER, *(f"{ENCODER}-{kind}" for kind in KINDS), PARTIAL, f"{PARTIAL}-hnsw")
QUERIES = ("red whale in the deep ocean", "king of the mountain", "naïve fox", "café bell stone river planet")


def look_up_everything() -> None:
    """Print a store's passages by row, id and title, and its text keys."""
    store = open_store("mine")
    passages = store.get_many(range(N_PASSAGES))
    rows = store.rows_of([*(f"p{n}" for n in range(N_PASSAGES)), "none"])
    titled = [store.rows_with_title(title).tolist() for title in ("Same", "none", *(f"T{n}" for n in range(N_PASSAGES // 4)))]
    json.dump([passages, rows.tolist(), titled, store.text_key.tolist()], sys.stdout)


def read(part: str) -> Finished:
    """Read all readable data of a part."""
    if part == "passages":
        return wait_for_end(look_up_everything)
    return idx("search", "mine", *QUERIES, "--json", "--retriever", part, "-k", 300, "--depth", 300)


@pytest.fixture(scope="module")
def undisturbed(whole_home: Path) -> dict[str, str]:
    """Contents of each part of an intact home."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IDX_HOME", str(whole_home))
        return {part: read(part).out for part in ("passages", *INDEXES)}


@pytest.fixture
def corrupt_home(whole_home: Path, home: Path) -> Path:
    """A copy of the intact home, to be corrupted."""
    shutil.copytree(whole_home / "mine", home / "mine")
    return home


def files_of(part: str) -> list[Path]:
    return sorted(file for file in path_of(part).rglob("*") if file.is_file())


@contextmanager
def flipped(file: Path, place: int, bit: int) -> Iterator[None]:
    """Flip a bit of a file, and then back."""
    content = file.read_bytes()
    corrupt = bytearray(content)
    corrupt[place] ^= 1 << bit
    file.write_bytes(corrupt)
    yield
    file.write_bytes(content)


def check_corruption(part: str, file: Path, place: int, bit: int, expected: str) -> None:
    """Flip a bit; see that ``idx check`` finds it, and that readers get the original data or an error."""
    where = f"bit {bit} of byte {place:,} of {file}"
    with flipped(file, place, bit):
        checked, found = idx("check", "mine", "--json"), read(part)
    assert checked.status == 1, (where, checked)
    assert json.loads(checked.out)["problems"][part], (where, checked)
    if found.status:
        assert found.error, where
    else:
        assert found.out == expected, where


def places(chance: random.Random, n_bytes: int, n: int) -> list[int]:
    """Choose bytes of a file: in turn the first, the last, one of its header, and any."""
    chosen = (0, n_bytes - 1, chance.randrange(min(256, n_bytes)), chance.randrange(n_bytes))
    return [*chosen, *(chance.randrange(n_bytes) for _ in range(n))][:n]


@pytest.mark.parametrize("part", ["passages", "bm25", ENCODER, f"{ENCODER}-ivf", f"{ENCODER}-hnsw"])
def test_a_flipped_bit_is_found(corrupt_home: Path, undisturbed: dict[str, str], part: str) -> None:
    chance = random.Random(part)
    files = [file for file in files_of(part) if file.stat().st_size]
    for file in (path_of(part) / MANIFEST, *chance.sample(files, min(3, len(files)))):
        (place,) = chance.sample(places(chance, file.stat().st_size, 4), 1)
        check_corruption(part, file, place, chance.randrange(8), undisturbed[part])


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", ["passages", *INDEXES])
def test_flipped_bits_of_every_file_are_found(corrupt_home: Path, undisturbed: dict[str, str], part: str) -> None:
    chance = random.Random(f"all of {part}")
    files = [file for file in files_of(part) if file.stat().st_size]
    for file in files:
        for place in places(chance, file.stat().st_size, max(3, 12 // len(files))):
            check_corruption(part, file, place, chance.randrange(8), undisturbed[part])


def test_the_pages_of_a_store_are_compared_before_lmdb_reads_them(corrupt_home: Path, undisturbed: dict[str, str]) -> None:
    """Heads and nodes of pages: what LMDB follows, and without checksums met with SIGBUS, SIGABRT and wrong rows."""
    file = path_of("passages") / DATABASE
    n_pages = file.stat().st_size // 4096
    chance = random.Random(5)
    for page in chance.choices(range(n_pages), k=60):
        place = 4096 * page + chance.choice((chance.randrange(16), chance.randrange(16, 80), chance.randrange(2048, 4096)))
        with flipped(file, place, chance.randrange(8)):
            found = read("passages")
        assert found.out == undisturbed["passages"] if not found.status else found.error, (page, place)
