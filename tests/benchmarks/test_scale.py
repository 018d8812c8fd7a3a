"""Growth of figures against known laws, monitoring of processes, and a run that is interrupted and resumed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.monitoring import Monitor, folder_bytes, run_monitored
from benchmarks.scale.growth import HELD, Series, required_machine, series
from tests.conftest import ROOT
from wikidx.base.errors import IdxError

SIZES = (1_000, 4_000, 16_000)


def of_law(exponent: float, own: float = 0.0) -> Series:
    return Series("build x", "time", "s", SIZES, [2 * n**exponent + own for n in SIZES])


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.5])
def test_a_power_law_is_found_and_followed(exponent: float) -> None:
    found = of_law(exponent)
    assert found.exponent == pytest.approx(exponent)
    assert found.last_exponent == pytest.approx(exponent)
    if exponent >= 1:
        assert found.estimate(1_000_000) == pytest.approx(2 * 1_000_000**exponent)
    assert found.remark() == ("worse than linear" if exponent > 1 else "")


def test_what_a_process_takes_for_itself_does_not_hide_that_the_rest_is_linear() -> None:
    found = of_law(1.0, own=10_000)
    assert found.exponent < found.last_exponent < 1
    assert found.estimate(1_000_000) == pytest.approx(2 * 1_000_000 + 10_000)


def test_what_shrinks_is_taken_to_stay() -> None:
    assert Series("open x", "time", "s", SIZES, [3.0, 2.0, 2.0]).estimate(1_000_000) == pytest.approx(2)
    assert Series("open x", "time", "s", SIZES, [3.0, 2.5, 2.0]).estimate(1_000_000) == pytest.approx(2)


def measure_step(n: int, own: float) -> dict[str, dict[str, float]]:
    """A corpus of 400 bytes of text a passage, and a build that takes a millisecond for each."""
    build = {"s": n / 1000, "cpu_s": n / 500, "own": own, "resident": 1e9, "disk": 900.0 * n, "kept": 300.0 * n}
    return {"passages": {"s": 1.0, "text": 400.0 * n}, "build passages": build, "check": {"s": n / 1e5, "own": 1e6}}


def test_memory_that_grows_with_the_text_is_remarked() -> None:
    for share, remark in ((0.9 * HELD, ""), (1.1 * HELD, "holds the corpus")):
        found = series({n: measure_step(n, own=1e8 + share * 400 * n) for n in SIZES})
        (own,) = (one for one in found if (one.step, one.figure) == ("build passages", "own memory"))
        assert own.bytes_per_text_byte == pytest.approx(share)
        assert own.remark() == remark


def test_the_machine_that_is_needed_is_the_sum_of_what_the_steps_need() -> None:
    wiki2018, _ = required_machine(list(series({n: measure_step(n, own=1e8 + 40 * n) for n in SIZES})), {"minilm": 0.02})
    n = 21_015_324
    assert wiki2018 == pytest.approx(
        {
            "passages": n,
            "disk GB": 300 * n / 1e9,
            "most disk while building GB": 900 * n / 1e9,
            "own memory GB, most": (1e8 + 40 * n) / 1e9,
            "(of)": "build passages",
            "hours to build": n / 1000 / 3600,
            "processor hours": n / 500 / 3600,
            "minutes to check": n / 1e5 / 60,
            "hours to embed by minilm": n * 0.02 / 3600,
        }
    )


def test_a_step_that_one_size_lacks_is_shown_for_the_others() -> None:
    figures = {n: measure_step(n, own=1e8) for n in SIZES}
    del figures[SIZES[0]]["check"]
    (check,) = (one for one in series(figures) if (one.step, one.figure) == ("check", "time"))
    assert check.sizes == list(SIZES[1:])


def test_what_a_command_takes_is_seen(tmp_path: Path) -> None:
    program = f"""
import mmap, pathlib, sys, time
own = bytearray(200_000_000)
file = pathlib.Path({str(tmp_path)!r}, "file")
file.write_bytes(bytes(100_000_000))
with file.open("rb") as opened:
    mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    sum(mapped[::4096])
    started = time.process_time()
    while time.process_time() < started + 0.3:
        pass
time.sleep(0.3)
file.unlink()
print("done")
"""
    usage, printed = run_monitored(["-c", program], tmp_path)
    assert printed == "done\n"
    assert 200e6 < usage.own < 260e6
    assert 295e6 < usage.resident < 400e6
    assert usage.cpu_s >= 0.3
    assert usage.s >= 0.6
    assert folder_bytes(tmp_path) == 0


def test_memory_is_that_of_all_processes_of_a_tree() -> None:
    child = "import time; kept = bytearray(100_000_000); time.sleep(30)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with subprocess.Popen([sys.executable, "-c", parent]) as process:
        try:
            with Monitor(process.pid) as watch:
                deadline = time.monotonic() + 20
                while watch.own < 100e6 and time.monotonic() < deadline:
                    time.sleep(0.05)
            assert 100e6 < watch.own < 150e6
        finally:
            for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
                subprocess.run(["kill", pid], check=True)
            process.kill()


def test_a_command_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(IdxError, match=r"status 3: out of luck"):
        run_monitored(["-c", "import sys; print('out of luck', file=sys.stderr); sys.exit(3)"], tmp_path)


def run(work: Path, *arguments: object) -> str:
    """Measure two tiny corpora of generated articles; return the output."""
    articles, questions = work / "articles.jsonl", work / "questions.jsonl"
    if not articles.exists():
        words = [f"word{n}" for n in range(400)]
        texts = (" ".join(words[(7 * n + place * (n % 5 + 1)) % 400] for place in range(60)) + " ." for n in range(120))
        articles.write_text("".join(json.dumps({"id": str(n), "title": f"t{n}", "text": text}) + "\n" for n, text in enumerate(texts)))
        questions.write_text("".join(json.dumps({"question": f"word{n % 400} word{n % 7}"}) + "\n" for n in range(600)))
    command = ["--work", work, "--source", articles, "--asked", questions, "--no-warm-up", "--sizes", 500, 1500, "--seconds", 0.1]
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.scale", *map(str, [*command, *arguments])], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def figures(work: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((work / "figures.json").read_bytes())
    return found


@pytest.mark.slow  # ten seconds
def test_a_run_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    chosen = ["--retrievers", "bm25", "--embedded", 0, "--steps", "passages", "build"]
    assert "| step |" not in run(tmp_path, *chosen, "--minutes", 0)
    run(tmp_path, *chosen[:4], "--steps", "passages")
    before = figures(tmp_path)
    assert {size: list(steps) for size, steps in before.items()} == {"500": ["passages"], "1500": ["passages"]}
    printed = run(tmp_path, *chosen)
    after = figures(tmp_path)
    assert all(after[size]["passages"] == steps["passages"] for size, steps in before.items())
    for steps in after.values():
        assert list(steps) == ["passages", "build passages", "build bm25"]
        assert steps["build passages"]["kept"] > 0 < steps["build bm25"]["kept"]
        assert steps["build bm25"]["own"] < steps["build bm25"]["resident"]
    assert "| build bm25 | own memory MB |" in printed
    assert "hours to build" in printed


@pytest.mark.exhaustive
@pytest.mark.slow  # a minute and a half: about thirty processes
def test_every_step_runs_and_leaves_nothing_but_figures(shared_data: Path, tmp_path: Path) -> None:
    pytest.importorskip("faiss", reason="needs the extra 'dense'")
    printed = run(tmp_path, "--embedded", 8, "--clients", 2, "--retrievers", "bm25", "minilm-ivfpq")
    found = figures(tmp_path)
    assert set(found) == {"500", "1500", "embed"}
    assert found["embed"]["minilm"]["a_passage_s"] > 0
    for name in ("bm25", "minilm-ivfpq"):
        assert found["1500"][f"search {name}"]["batch_512_s"] > 0 < found["1500"][f"search {name}"]["processors_512_s"]
        assert found["1500"][f"serve {name}"]["clients_2_s"] > 0
        assert f"| open {name}, cold | time s |" in printed
    assert not (tmp_path / "500").exists()
    assert not (tmp_path / "1500").exists()
