"""The packaged encoder: its checksum, its device, and what only a process of its own shows."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from wikidx.base.errors import ArtifactMismatch
from wikidx.indexer.encoders.transformer import TransformerEncoder
from wikidx.indexer.naming import encoder_spec


def run(script: str) -> str:
    """Return what a script prints, run by a process of its own, whose settings of threads and oneDNN are the library's."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ONEDNN", "OMP_NUM"))}
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT, env=environment).stdout


def test_other_weights_are_refused() -> None:
    spec = dataclasses.replace(encoder_spec("minilm"), weights_sha256="0" * 64)
    with pytest.raises(ArtifactMismatch, match=r"model\.safetensors is not the checkpoint of 'minilm'"):
        TransformerEncoder(spec)


_SHAPES = """
import random
from pathlib import Path
from wikidx.indexer.encoders.transformer import TransformerEncoder
from wikidx.indexer.naming import encoder_spec

encoder, rng = TransformerEncoder(encoder_spec("minilm")), random.Random(0)
for n in range(301):
    encoder.encode_queries(["word " * rng.randint(4, 40) for _ in range(rng.randint(1, 24))])
    if n in (100, 300):
        print(next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon")))
"""


@pytest.mark.exhaustive
@pytest.mark.slow  # a minute
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc, which Linux has")
def test_memory_does_not_grow_with_the_shapes_of_batches() -> None:
    """It grew by 50 MB in these 200 batches, when all that was made was kept."""
    first, last = map(int, run(f"import os; os.environ['OMP_NUM_THREADS'] = '1'\n{_SHAPES}").split())
    assert last - first < 15_000, f"{last - first:,} KB"


_FORK = """
import os, signal
from wikidx.indexer.encoders.transformer import TransformerEncoder
from wikidx.indexer.naming import encoder_spec

encoder = TransformerEncoder(encoder_spec("minilm"))
expected = encoder.encode_queries(["who found phosphorus"] * 8)
child = os.fork()
if not child:
    signal.alarm(30)  # what hangs is killed
    os._exit(int(abs(encoder.encode_queries(["who found phosphorus"] * 8) - expected).max() > 1e-6))
print(os.waitpid(child, 0)[1])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")
@pytest.mark.slow  # eight seconds
def test_a_forked_process_encodes() -> None:
    assert run(_FORK) == "0\n"
