"""Memory of embedding many passages as long vectors: all but the network, whose place a fake takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

_EMBED = """
import sys
from pathlib import Path
import numpy as np, torch
from wikidx.corpora.passage import Passage
from wikidx.indexer.embedding import pipeline
from wikidx.indexer.embedding.embed import EmbedProgress, embed
from wikidx.indexer.embedding.options import Precision, Resources
from wikidx.indexer.encoders.spec import Tokens
from wikidx.indexer.naming import encoder_spec
from wikidx.indexer.vectors.file import VectorFile

DIM, N_ROWS, FOLDER, STORED = 1024, int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]

class FakeStore:
    def read(self, start, stop):
        return [Passage(str(row), "", "river " * 100) for row in range(start, stop)]

class FakeTokenizer:
    def __init__(self, *arguments): pass
    def passages(self, passages):
        numbers = np.array([int(passage.id) for passage in passages], dtype=np.int32)
        return Tokens(np.repeat(numbers, 100), np.arange(100, 100 * len(numbers) + 1, 100), None)

class FakeModel:
    dim = DIM
    def __init__(self, *arguments): pass
    def pad(self, tokens, numbers):
        return tokens.ids[tokens.ends[numbers] - 1]
    def forward(self, rows):
        return torch.from_numpy(rows[:, None] % 1000 + np.arange(DIM, dtype=np.float32) / DIM)

pipeline.Tokenizer, pipeline.Model, peak = FakeTokenizer, FakeModel, 0

def look(*done):
    global peak
    fields = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    peak = max(peak, 1024 * int(fields["RssAnon"].split()[0]))

file = VectorFile(FOLDER, N_ROWS, STORED)
job = pipeline.Job(encoder_spec("minilm"), FakeStore, file.write, Resources(("cpu",), Precision("float32", STORED), 32_768, 0))
embed(job, file, EmbedProgress(look))
vectors = file.map_readonly()
assert vectors.shape == (N_ROWS, DIM) and not file.unfinished_ranges()
for row in (0, 1023, 1024, N_ROWS // 2, N_ROWS - 1):
    np.testing.assert_array_equal(vectors[row], (row % 1000 + np.arange(DIM) / DIM).astype(STORED))
print(peak)
"""


@pytest.mark.slow  # ten seconds
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of a process in /proc")
@pytest.mark.parametrize(
    ("n_rows", "stored"), [(40_000, "float16"), pytest.param(1_000_000, "float32", marks=pytest.mark.exhaustive)]
)  # a file of 80 MB, and one of 4 GB
def test_a_million_vectors_of_1024_components_take_less_than_a_gigabyte(n_rows: int, stored: str, tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", _EMBED, str(n_rows), str(tmp_path), stored]
    ran = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
    (tmp_path / "vectors.npy").unlink(missing_ok=True)
    assert ran.returncode == 0, ran.stderr
    assert 50e6 < int(ran.stdout) < 1e9, f"{int(ran.stdout):,} bytes"
