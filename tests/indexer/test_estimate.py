"""Estimates of a build's needs, compared with values worked out by hand."""

from __future__ import annotations

import dataclasses
import resource
import sys
from pathlib import Path

import pytest

from wikidx.corpora.artifacts.home import downloads_path
from wikidx.corpora.known import sample
from wikidx.corpora.passage import Passage, SourceFile
from wikidx.indexer.embedding.options import EmbedOptions, Precision, Resources
from wikidx.indexer.embedding.pipeline import Measurement
from wikidx.indexer.estimate import StepEstimate, disk_shortage, estimate_import, estimate_vectors, scale_measurement
from wikidx.indexer.naming import encoder_spec
from wikidx.indexer.published.addresses import PublishedVectors
from wikidx.indexer.published.importing import ImportOptions

MEASURED = Measurement(seconds_per_byte=1e-6, dim=768, peak_bytes=2_000_000_000)


def figures(estimate: StepEstimate) -> tuple[float, float, float]:
    return estimate.disk_bytes, estimate.memory_bytes, estimate.time_s


def test_vectors_on_a_cpu() -> None:
    found = Resources(("cpu",), Precision("float32", "float32"), 1024, 0)
    estimate = scale_measurement("contriever", found, MEASURED, 21_000_000, 21_000_000 * 700)
    # 768 components of 4 bytes each; two ranges of 4,096 vectors beside the model; a microsecond a byte.
    assert figures(estimate) == pytest.approx((64_512_000_000, 2_000_000_000 + 2 * 12_582_912, 14_700))
    assert estimate.step == "contriever"


def test_vectors_on_gpus_take_less_time_and_disk_and_more_memory() -> None:
    found = Resources(("cuda:0", "cuda:1", "cuda:2", "cuda:3"), Precision("float16", "float16"), 32_768, 3)
    estimate = scale_measurement("contriever", found, MEASURED, 21_000_000, 21_000_000 * 700)
    assert figures(estimate) == pytest.approx((32_256_000_000, 4 * (2_000_000_000 + 2 * 12_582_912 + 3 * 400_000_000), 3_675))


def test_a_sample_is_timed_and_its_rate_goes_by_bytes() -> None:
    pytest.importorskip("torch", reason="needs the extra 'dense'")
    passages = [Passage(str(n), "é", "nile " * 20) for n in range(12)]
    options = EmbedOptions(device="cpu")
    estimate = estimate_vectors(1_000_000, 500, passages, encoder_spec("minilm"), options)
    assert (estimate.step, estimate.disk_bytes) == ("minilm", 1_000_000 * 384 * 4)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    assert estimate.memory_bytes == pytest.approx(peak + 2 * 16_384 * 384 * 4, rel=0.1)
    # A passage here has 2 + 100 bytes and a number; 2 ms to 2 s each is the range of today's machines.
    assert 0.002 < estimate.time_s / 1_000_000 / 500 * 103 < 2
    assert estimate_vectors(1_000, 500, passages, encoder_spec("minilm"), options).time_s < estimate.time_s / 20


def test_a_passage_with_half_a_character_can_be_timed() -> None:
    pytest.importorskip("torch", reason="needs the extra 'dense'")
    assert estimate_vectors(1, 500, [Passage("1", "\ud800", "")], encoder_spec("minilm"), EmbedOptions(device="cpu")).time_s > 0


PUBLISHED = PublishedVectors(
    files=(SourceFile(name="one", url="https://one"), SourceFile(name="two", url="https://two")),
    format="dpr",
    download_bytes=1_000,
    stored_bytes=2,
)


@pytest.mark.parametrize(("dtype", "component_bytes"), [(None, 2), ("float32", 4), ("float16", 2)])
def test_imported_vectors(dtype: str | None, component_bytes: int) -> None:
    published = dataclasses.replace(PUBLISHED, download_bytes=3_000_000_000)
    n_bytes = 1_000_000 * 768 * component_bytes
    estimate = estimate_import(1_000_000, encoder_spec("contriever"), published, ImportOptions(dtype=dtype))
    assert figures(estimate) == pytest.approx((n_bytes, 600_000_000, (n_bytes + 3_000_000_000) / 150e6))


def put(name: str, n_bytes: int) -> None:
    path = downloads_path("wiki2018") / "dpr" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(n_bytes))


def test_what_is_downloaded_already_is_not_counted(home: Path) -> None:
    assert PUBLISHED.missing_bytes("wiki2018", "dpr") == 1_000
    put("one.part", 150)
    assert PUBLISHED.missing_bytes("wiki2018", "dpr") == 850
    put("one", 400)
    (downloads_path("wiki2018") / "dpr" / "one.part").unlink()
    put("other", 999)
    assert PUBLISHED.missing_bytes("wiki2018", "dpr") == 600
    assert PUBLISHED.missing_bytes("wiki2018", "contriever") == 1_000
    put("two.part", 700)  # the size was only about right
    assert PUBLISHED.missing_bytes("wiki2018", "dpr") == 0
    (downloads_path("wiki2018") / "dpr" / "two.part").unlink()
    put("two", 100)
    assert PUBLISHED.missing_bytes("wiki2018", "dpr") == 0  # both are there, whatever their size


def test_a_disk_that_is_too_small_is_reported(home: Path) -> None:
    small, large = StepEstimate("a", 1e3, 0, 0), StepEstimate("b", 1e18, 0, 0)
    assert disk_shortage([small, small], 10) is None
    assert disk_shortage([], 10**18) is not None
    message = disk_shortage([small, large], 0)
    assert message is not None
    assert message.startswith(f"about 1000000000.0 GB are needed under {home}, ")


def test_there_are_passages_to_time_an_encoder_on() -> None:
    assert len([passage for _, passage in zip(range(200), sample.passages(), strict=False)]) == 200
