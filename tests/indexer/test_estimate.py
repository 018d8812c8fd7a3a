"""Estimates of a build's needs, compared with values worked out by hand."""

from __future__ import annotations

import dataclasses
import logging
import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wikidx.indexer.estimate
from wikidx.base.artifacts.home import downloads_path
from wikidx.base.net.download import SourceFile
from wikidx.corpora.estimate import CorpusEstimate
from wikidx.corpora.known import sample
from wikidx.corpora.passage import Passage
from wikidx.indexer.embedding.options import EmbedOptions, Precision, Resources
from wikidx.indexer.estimate import (
    Measurement,
    StepEstimate,
    disk_shortage,
    estimate_import,
    estimate_vectors,
    keep_measurement,
    kept_measurement,
    measure_encoder,
    scale_measurement,
)
from wikidx.indexer.naming import encoder_spec
from wikidx.indexer.published.addresses import PublishedVectors
from wikidx.indexer.published.importing import ImportOptions

MEASURED = Measurement(seconds_per_token=4e-6, dim=768, peak_bytes=2_000_000_000)
CPU = EmbedOptions(device="cpu")


def figures(estimate: StepEstimate) -> tuple[float, float | None, float | None]:
    return estimate.disk_bytes, estimate.memory_bytes, estimate.time_s


def test_vectors_on_a_cpu() -> None:
    found = Resources(("cpu",), Precision("float32", "float32"), 1024, 0)
    estimate = scale_measurement(encoder_spec("contriever"), found, MEASURED, 21_000_000, 21_000_000 * 175, 7)
    # 768 components of 4 bytes each; two ranges of 4,096 vectors beside the model; four microseconds a token.
    assert figures(estimate) == pytest.approx((64_512_000_000, 2_000_000_000 + 2 * 12_582_912, 14_700))
    assert (estimate.step, estimate.n_truncated) == ("contriever", 7)


def test_vectors_on_gpus_take_less_time_and_disk_and_more_memory() -> None:
    found = Resources(("cuda:0", "cuda:1", "cuda:2", "cuda:3"), Precision("float16", "float16"), 32_768, 3)
    estimate = scale_measurement(encoder_spec("contriever"), found, MEASURED, 21_000_000, 21_000_000 * 175, 0)
    assert figures(estimate) == pytest.approx((32_256_000_000, 4 * (2_000_000_000 + 2 * 12_582_912 + 3 * 400_000_000), 3_675))


def test_an_encoder_is_timed_once_and_its_rate_goes_by_tokens(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("torch", reason="needs the extra 'dense'")
    passages = [Passage(str(n), "é", "nile " * 20) for n in range(12)]
    with caplog.at_level(logging.INFO, "wikidx.indexer.estimate"):
        estimate = estimate_vectors(CorpusEstimate(1_000_000, 103, 0, passages), encoder_spec("minilm"), CPU)
    assert caplog.messages == ["timing 'minilm' on 12 passages, for this estimate and later ones on this machine"]
    assert (estimate.step, estimate.disk_bytes) == ("minilm", 1_000_000 * 384 * 4)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    assert estimate.memory_bytes == pytest.approx(peak + 2 * 16_384 * 384 * 4, rel=0.1)
    # A passage here has 103 bytes; 2 ms to 2 s each is the range of today's machines.
    assert estimate.time_s is not None
    assert 0.002 < estimate.time_s / 1_000_000 < 2
    monkeypatch.delattr(wikidx.indexer.estimate, "PassageEncoder")  # it is not timed again
    small = estimate_vectors(CorpusEstimate(1_000, 103, 0, passages), encoder_spec("minilm"), CPU)
    assert small.time_s == pytest.approx(estimate.time_s / 1_000)
    long = [Passage("1", "", "nile " * 100_000)]  # one passage, of which 256 tokens are read
    cut = estimate_vectors(CorpusEstimate(1_000, 500_001, 0, long), encoder_spec("minilm"), CPU)
    assert cut.time_s == pytest.approx((small.time_s or 0) * 256 / (20 + 1 + 2), rel=0.1)


@pytest.mark.parametrize(
    ("n_tokenizing", "tokenizing_s", "encoding_s", "expected_s", "n_warm"),
    [
        (0, 1.0, 5.0, 5.0, 8),  # a CPU: both take turns
        (4, 1.0, 5.0, 4.0, 20),  # a GPU waits for nobody
        (2, 9.0, 10.0, 4.5, 20),  # a GPU waits for the tokenising processes
    ],
)
def test_on_a_gpu_the_slower_of_tokenising_and_encoding_counts(
    n_tokenizing: int, tokenizing_s: float, encoding_s: float, expected_s: float, n_warm: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, n_encoded = [0.0], list[int]()
    passages = [Passage(str(number), "", "text") for number in range(20)]

    class Encoder:
        def __init__(self) -> None:
            self.n_tokenizing = n_tokenizing

        def count_tokens(self, passages: list[Passage]) -> int:
            now[0] += tokenizing_s
            return 1_000

        def encode(self, passages: list[Passage]) -> np.ndarray[Any, Any]:
            n_encoded.append(len(passages))
            now[0] += encoding_s
            return np.zeros((len(passages), 7))

    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    found = measure_encoder(Encoder(), passages)  # type: ignore[arg-type]
    assert found.seconds_per_token == pytest.approx(expected_s / 1_000)
    assert n_encoded == [n_warm, 20]


@pytest.mark.parametrize("content", ["", "[]", "{", '{"other": [1, 2, 3]}'])
def test_a_small_corpus_is_not_worth_timing_an_encoder(content: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.mkdir()
    (home / "timings.json").write_text(content)
    monkeypatch.delattr(wikidx.indexer.estimate, "PassageEncoder")
    corpus = CorpusEstimate(4_999, 100, 0, [Passage("1", "Nile", "A river.")])
    assert figures(estimate_vectors(corpus, encoder_spec("minilm"), CPU)) == (4_999 * 384 * 4, None, None)


def test_a_measurement_is_kept_for_the_same_resources_only(home: Path) -> None:
    spec, found = encoder_spec("minilm"), Resources(("cpu",), Precision("float32", "float32"), 1024, 0)
    keep_measurement(spec, found, MEASURED)
    keep_measurement(spec, found._replace(batch_tokens=2048), MEASURED._replace(dim=1))
    assert kept_measurement(spec, found) == MEASURED
    assert kept_measurement(spec, found._replace(devices=("cpu", "cpu"))) is None
    kept = (home / "timings.json").read_text()
    for damaged in ('"many"', "1e999"):
        (home / "timings.json").write_text(kept.replace("768", damaged))
        assert kept_measurement(spec, found) is None


def test_passages_beyond_the_limit_of_an_encoder_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The title counts too; without passages of the corpus, nothing is known."""
    passages = [Passage(str(n), "", "nile " * n) for n in (1, 254, 255, 300, 100_000)] + [Passage("t", "nile " * 200, "nile " * 60)]
    estimate = estimate_vectors(CorpusEstimate(3_000, 500, 0, passages), encoder_spec("minilm"), CPU)
    assert estimate.n_truncated == 2_000
    assert estimate_vectors(CorpusEstimate(3_000, 500, 0, []), encoder_spec("minilm"), CPU).n_truncated == 0


def test_a_passage_with_half_a_character_can_be_timed() -> None:
    pytest.importorskip("torch", reason="needs the extra 'dense'")
    corpus = CorpusEstimate(5_000, 500, 0, [Passage("1", "\ud800", "")])
    assert (estimate_vectors(corpus, encoder_spec("minilm"), CPU).time_s or 0) > 0


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
