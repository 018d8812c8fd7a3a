"""``idx check --gpu``: all parts, on the GPU or at small sizes on the CPU; the ways in which a part can end; and what is said of it."""

from __future__ import annotations

import dataclasses
import json
import pkgutil
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'dense'")

from tests.runtimes.command_line import Command  # noqa: E402
from tests.runtimes.fake_gpu_parts import fake_part  # noqa: E402
from wikidx.indexer.base import NO_ROW, Hits  # noqa: E402
from wikidx.indexer.encoders.model import Model  # noqa: E402
from wikidx.indexer.indexes.exact import gpu as exact_gpu  # noqa: E402
from wikidx.indexer.indexes.exact.memory import WORK_BYTES  # noqa: E402
from wikidx.indexer.networks.network import Batch  # noqa: E402
from wikidx.runtimes import gpu_check  # noqa: E402
from wikidx.runtimes.gpu_check import PARTS, Outcome, check_gpu, machine, speed  # noqa: E402
from wikidx.runtimes.gpu_check.memory import take_memory  # noqa: E402
from wikidx.runtimes.gpu_check.reporting import ISSUE_BYTES, has_passed, issue_text, summary, table_lines, to_json  # noqa: E402
from wikidx.runtimes.gpu_check.running import Part, run_part  # noqa: E402
from wikidx.runtimes.gpu_check.search import largest_difference, largest_spread, misplaced_ties  # noqa: E402
from wikidx.runtimes.gpu_check.task import Record, Task  # noqa: E402
from wikidx.runtimes.llms.base import Call, Reply  # noqa: E402
from wikidx.runtimes.llms.transformers_engine import TransformersEngine  # noqa: E402

DEVICE = "cuda:0" if torch.cuda.is_available() else "cpu"


def part_named(name: str) -> Part:
    return next(part for part in PARTS if part.name == name)


def run_here(part: Part, folder: Path) -> list[Record]:
    """Run a part in this process, where a fixture can reach what it calls."""
    records = list[Record]()
    sizes: dict[str, Any] = json.loads(json.dumps(part.on_gpu if DEVICE == "cuda:0" else part.on_cpu))  # as its own process gets them
    pkgutil.resolve_name(part.function)(Task(DEVICE, folder, part.limit_s, records.append), **sizes)
    return records


@pytest.mark.gpu
@pytest.mark.parametrize("part", [part for part in PARTS if not part.environment], ids=lambda part: part.name)
def test_parts_pass(part: Part, tmp_path: Path) -> None:
    records = run_here(part, tmp_path)
    assert [record for record in records if "difference" in record and not record["passed"]] == []
    assert any("difference" in record for record in records) == (part.kind == "correctness")
    assert part.kind == "correctness" or any("figures" in record for record in records)


@pytest.mark.gpu
def test_parts_with_an_environment_of_their_own_pass_in_a_process_of_their_own() -> None:
    (part,) = (part for part in PARTS if part.environment)
    outcome = run_part(part, DEVICE, 600)
    assert outcome.status == "passed", outcome
    assert len(outcome.differences) >= 3


def test_a_lost_mask_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pad = Model.pad_tokens

    def pad_without_mask(self: Model, *arguments: Any) -> Batch:  # noqa: ANN401 - as those of pad
        return pad(self, *arguments)._replace(mask=None)

    monkeypatch.setattr(Model, "pad_tokens", pad_without_mask)
    part = part_named("encoder bert")
    records = run_here(part._replace(on_cpu={**part.on_cpu, "dtypes": ["bfloat16"], "backends": ["flash"]}), tmp_path)
    assert [record["case"].partition(",")[0] for record in records if not record["passed"]] == ["masked", "batches in another order"]


def test_another_token_than_the_likeliest_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = TransformersEngine.run

    def run_and_garble(self: TransformersEngine, calls: list[Call]) -> list[Any]:
        first, *others = run(self, calls)
        assert isinstance(first, Reply)
        assert isinstance(first.result, tuple)
        (gen,) = first.result
        assert gen.token_ids
        return [Reply((dataclasses.replace(gen, token_ids=(*gen.token_ids[:-1], gen.token_ids[-1] + 1)),)), *others]

    monkeypatch.setattr(TransformersEngine, "run", run_and_garble)
    assert not any(record["passed"] for record in run_here(part_named("language model"), tmp_path))


@pytest.mark.skipif(DEVICE != "cpu", reason="the refusal is injected on a CPU only")
def test_an_error_of_torch_that_gets_through_is_no_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_gpu, "_gpu_errors", lambda device: nullcontext())
    with pytest.raises(torch.OutOfMemoryError):
        run_here(part_named("memory refused"), tmp_path)


@pytest.mark.parametrize("name", ["encoder bert", "language model"])
def test_what_idx_does_not_use_is_recorded_on_a_gpu_and_checked_by_nobody(name: str, tmp_path: Path) -> None:
    """The branches for a GPU, on the CPU, where torch has no attention of cuDNN."""
    part, records = part_named(name), list[Record]()
    sizes = dict(part.on_cpu) | ({"backends": ["cudnn", "math"], "dtypes": ["float32"]} if "backends" in part.on_cpu else {})
    task = Task("cpu", tmp_path, part.limit_s, records.append)
    task.on_gpu = True
    pkgutil.resolve_name(part.function)(task, **sizes)
    unused = [record for record in records if "figures" in record or "note" in record]
    assert unused
    assert all("cudnn" in (record.get("case") or record["note"]).lower() for record in unused)
    assert all(record["passed"] for record in records if "difference" in record)
    assert not torch.backends.cuda.cudnn_sdp_enabled()


@pytest.mark.parametrize(
    ("message", "is_noted"), [("Invalid backend", True), ("No available kernel. Aborting", True), ("CUDA error: misaligned address", False)]
)
def test_attention_that_torch_does_not_have_is_no_failure(
    message: str, is_noted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **named: object) -> None:
        raise RuntimeError(message)

    part, records = part_named("encoder bert"), list[Record]()
    sizes = dict(part.on_cpu) | {"backends": ["flash"], "dtypes": ["float32"]}
    monkeypatch.setattr("wikidx.runtimes.gpu_check.encoders._encode_masked", refuse)
    with nullcontext() if is_noted else pytest.raises(RuntimeError, match="misaligned"):
        pkgutil.resolve_name(part.function)(Task("cpu", tmp_path, part.limit_s, records.append), **sizes)
    assert any("note" in record for record in records) == is_noted


def test_the_environment_of_a_container_is_not_reported_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVIDIA_REQUIRE_CUDA", "cuda>=13.0 brand=tesla" * 100)
    monkeypatch.setenv("NV_CUDNN_VERSION", "9.14")
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    environment = machine._environment()
    assert environment["NVIDIA_TF32_OVERRIDE"] == "0"
    assert not {"NVIDIA_REQUIRE_CUDA", "NV_CUDNN_VERSION"} & set(environment)


class FakeEvent:
    """An event of a GPU that takes its time from the clock."""

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, other: FakeEvent) -> float:
        return 1e3 * (other.at - self.at)


def test_speed_is_that_of_as_many_vectors_as_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The branches for a GPU, on the CPU, with torch's answers replaced: 3,000 vectors fit beside what a search needs."""
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (WORK_BYTES + 3_000 * 2 * 16, 1 << 40))
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(machine, "_GPU_SIZES", machine._CPU_SIZES)
    monkeypatch.setattr(speed, "_OPENED_ROWS", 1_000)
    records = list[Record]()
    task = Task("cpu", tmp_path, 100, records.append)
    task.on_gpu = True
    speed.measure_search(task, n_rows=21_015_324, dim=16, batches=[1, 3], ks=[10], rounds=1)
    figures = {record["case"]: record["figures"] for record in records}
    assert figures["vectors, and then the queries at a time"] == {"rows": 3_000, "components": 16}
    for batch in (1, 3):
        for kind in ("float16", "float32"):
            row = figures[f"{batch} {kind}, k 10"]
            ceilings, seconds = figures["ceilings"], row["ms"] / 1e3
            assert row["queries/s"] == pytest.approx(batch / seconds)
            assert row["copy %"] == pytest.approx(100 * 3_000 * 16 * 2 / seconds / 1e9 / ceilings["copy GB/s"])
            assert row["FLOP %"] == pytest.approx(100 * 2 * batch * 3_000 * 16 / seconds / 1e12 / ceilings["products TFLOP/s"])
            assert row["gap ms"] == pytest.approx(max(0, row["ms"] - row["product ms"]))
            assert row["pick ms"] > 0


def test_all_memory_of_a_gpu_is_taken_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """With torch's answers replaced: of 2.5 GiB that are free, 100 MiB cannot be had."""
    free, empty, taken = 5 << 29, torch.empty, list[int]()

    def take(size: int, *, dtype: object, device: str) -> Any:  # noqa: ANN401 - torch may be absent
        if sum(taken) + size > free - (100 << 20):
            raise torch.OutOfMemoryError("CUDA out of memory")
        taken.append(size)
        return empty(0, dtype=torch.uint8)

    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free - sum(taken), 1 << 33))
    monkeypatch.setattr(torch, "empty", take)
    with take_memory("cuda:0"):
        assert 100 << 20 <= free - sum(taken) < 132 << 20


EXACT = np.array([[3.0, 5.0, 4.0, -np.inf, 5.0]])


@pytest.mark.parametrize(
    ("rows", "scores", "difference"),
    [
        ([1, 4, 2, 0], [5, 5, 4, 3], 0.0),
        ([1, 4, 2, 0], [5, 5, 4, 3.5], 0.25),  # a score is off
        ([1, 4, 0, 2], [5, 5, 3, 4], 0.5),  # in another order
        ([1, 1, 4, 2], [5, 5, 5, 4], np.inf),  # a row twice
        ([1, 4, 2, 3], [5, 5, 4, 3], np.inf),  # a row without a vector
        ([1, 4, 2, NO_ROW], [5, 5, 4, -np.inf], np.inf),  # too few
    ],
)
def test_differences_of_a_search(rows: list[int], scores: list[float], difference: float) -> None:
    hits = Hits(np.array([rows]), np.array([scores], dtype=np.float32))
    assert largest_difference(hits, EXACT, np.array([2.0])) == difference


def test_ties_are_by_row_and_equal_vectors_score_equally() -> None:
    right, wrong = (Hits(np.array([rows]), np.array([[5, 5, 4]], dtype=np.float32)) for rows in ([1, 4, 2], [4, 1, 2]))
    assert (misplaced_ties(right, EXACT), misplaced_ties(wrong, EXACT)) == (0, 2)
    numbers = np.array([0, 1, 2, 3, 1])
    off = Hits(right.rows, np.array([[5, 4.5, 4]], dtype=np.float32))
    assert (largest_spread(right, numbers), largest_spread(off, numbers)) == (0.0, 0.5)


def test_every_way_to_end_is_one_line_and_the_others_go_on() -> None:
    parts = [fake_part(name) for name in ("right", "abort", "wrong", "raise_error", "absent")] + [fake_part("hang", 6), fake_part("right")]
    parts[-1] = parts[-1]._replace(environment={"FAKE": "set"}, on_cpu={"size": 7})
    outcomes = list(check_gpu(300, parts))
    assert [outcome.status for outcome in outcomes] == ["passed", "failed", "failed", "failed", "skipped", "failed", "passed"]
    assert [outcome.reason for outcome in outcomes] == [
        "",
        "the process was ended by SIGABRT: Faiss assertion 'err == cudaSuccess' failed",
        "2 of 3 differences are larger than allowed",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "FAISS is not installed",
        "did not end within 6 s",
        "",
    ]
    assert [len(outcome.differences) for outcome in outcomes] == [2, 1, 3, 0, 0, 1, 2]
    assert outcomes[0].differences[0]["case"] == "another"  # the one next to its limit
    assert [record["case"] for record in outcomes[2].differences[:2]] == ["no number", "off"]
    assert outcomes[-1].figures[0]["figures"] == {"size": 7, "environment": "set"}
    assert summary(outcomes) == ("no GPU here: 2 of 7 parts passed on the CPU; FAILED: abort, wrong, raise_error, hang; skipped: absent")
    assert not has_passed(outcomes)
    assert [next(iter(table_lines(outcome, 80))).split()[0] for outcome in outcomes] == [
        "passed", "FAILED", "FAILED", "FAILED", "skipped", "FAILED", "passed",
    ]  # fmt: skip
    described = json.loads(json.dumps(to_json(outcomes), allow_nan=False))
    assert [part["name"] for part in described["parts"]] == [part.name for part in parts]
    assert described["parts"][2]["differences"][0] == {"case": "no number", "difference": None, "allowed": 1e-5, "passed": False}
    assert "illegal memory access" in described["issue"]


def test_time_that_is_up_is_no_pass() -> None:
    outcomes = list(check_gpu(7, [fake_part("stubborn"), fake_part("right")]))
    assert [outcome.status for outcome in outcomes] == ["out of time", "not run"]
    assert [len(outcome.differences) for outcome in outcomes] == [1, 0]
    assert not has_passed(outcomes)
    assert summary(outcomes) == "no GPU here: 0 of 2 parts passed on the CPU; out of time: stubborn; not run: right"
    speed = [Outcome(outcome.part._replace(kind="speed"), outcome.status) for outcome in outcomes]
    assert has_passed([Outcome(fake_part("right"), "passed"), *speed])


def test_ctrl_c_ends_with_what_was_measured(idx: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(gpu_check, "PARTS", [fake_part("right"), fake_part("interrupt"), fake_part("right")])
    started = time.monotonic()
    assert idx("check", "--gpu", "--json", tmp_path / "check.json", status=130).startswith("interrupted")
    assert time.monotonic() - started < 120
    described = json.loads((tmp_path / "check.json").read_text())
    assert [part["status"] for part in described["parts"]] == ["passed", "interrupted", "not run"]
    assert described["parts"][1]["differences"][0]["case"] == "before the interrupt"


def test_the_command_writes_a_table_and_json(idx: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(gpu_check, "PARTS", [fake_part("right")])
    said = idx("check", "--gpu", "--json", tmp_path / "check.json").splitlines()
    assert said[0].strip() == "largest difference of the limit"
    assert said[1].startswith("passed      right                             3.0e-06 of 1e-05")
    assert said[-1] == "no GPU here: 1 of 1 parts passed on the CPU"
    assert json.loads((tmp_path / "check.json").read_text())["passed"]
    assert json.loads(idx("check", "--gpu", "--json"))["parts"][0]["name"] == "right"
    monkeypatch.setattr(gpu_check, "PARTS", [fake_part("wrong")])
    assert idx("check", "--gpu", status=1) == "error: not all parts passed: the first lines of each say why"


def test_what_does_not_belong_together_is_refused(idx: Command) -> None:
    assert idx("check", status=2) == "error: name a built corpus, or --gpu"
    for arguments in (("sample", "--gpu"), ("--gpu", "--recall")):
        assert "--gpu checks this machine" in idx("check", *arguments, status=2)


def test_lines_fit_and_the_text_of_an_issue_is_short() -> None:
    """Outcomes of a bad day: long names and outputs, many differences, figures in a table."""
    figures = {"ms": 1234.5, "queries/s": 8260.0, "product ms": 55.0, "pick ms": 29.0, "gap ms": 40.0, "copy %": 23.4, "FLOP %": 91.0}
    records: list[Record] = [{"case": f"1,024 float32, k {k}", "figures": figures} for k in (10, 100, 1_000)]
    records += [{"case": f"Fall № {n}, größer als erlaubt", "difference": n, "allowed": 1e-5, "passed": False} for n in range(50)]
    records += [{"note": "cuDNN: " + "no kernel for this " * 20}]
    bad = Outcome(PARTS[1], "failed", "cuda:0", 12.3, records, "50 of 50 differences are larger than allowed", "línea\n" * 500)
    card = Outcome(PARTS[0], "passed", "cuda:0", 9.0, [{"case": "cuda:0", "figures": {"card": "NVIDIA H100", "memory": "85 GB"}}])
    for width in (80, 120):
        assert max(len(line) for line in table_lines(bad, width)) <= width
    (row,) = (line for line in table_lines(bad, 80) if line.startswith("1,024 float32, k 1000 "))
    assert row.split()[4:] == ["1,234", "8,260", "55", "29", "40", "23.4", "91"]
    text = issue_text([card, *[bad] * 20])
    assert 1_000 < len(text.encode()) < ISSUE_BYTES
    assert "NVIDIA H100" in text
    assert text.startswith("**idx check --gpu**\n\n1 of 21 parts passed on NVIDIA H100; FAILED: exact search float16")
