"""Growth of figures against known laws, monitoring of processes, and what is judged of a server's memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.commits.__main__ import table
from benchmarks.growth import estimate, exponent, growth_rows
from benchmarks.monitoring import folder_bytes, run_monitored
from benchmarks.serve.soak import fitted_growth
from wikidx.base.errors import IdxError

SIZES = (1_000, 4_000, 16_000)


@pytest.mark.parametrize("power", [0.5, 1.0, 1.5])
def test_a_power_law_is_found_and_followed(power: float) -> None:
    values = [2 * n**power for n in SIZES]
    assert exponent(SIZES, values) == pytest.approx(power)
    if power >= 1:
        assert estimate(SIZES, values, 1_000_000) == pytest.approx(2 * 1_000_000**power)
    (row,) = growth_rows({n: {"build": {"s": value}} for n, value in zip(SIZES, values, strict=True)}, [])
    assert row["remark"] == ("worse than linear" if power > 1 else "")


def test_fixed_costs_do_not_hide_that_the_rest_is_linear_and_a_figure_that_shrinks_is_taken_to_stay() -> None:
    assert estimate(SIZES, [2 * n + 10_000 for n in SIZES], 1_000_000) == pytest.approx(2 * 1_000_000 + 10_000)
    assert estimate(SIZES, [3.0, 2.5, 2.0], 1_000_000) == pytest.approx(2)


def test_a_step_that_one_size_lacks_is_shown_for_the_others() -> None:
    (row,) = growth_rows({1_000: {}, 4_000: {"check": {"s": 2.0}}, 16_000: {"check": {"s": 8.0}}}, [32_000])
    assert [row[name] for name in ("1,000", "4,000", "16,000", "at 32,000")] == ["", 2, 8, pytest.approx(16)]


def test_usage_of_a_command_and_its_child_is_seen(tmp_path: Path) -> None:
    program = f"""
import mmap, pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; own = bytearray(100_000_000); time.sleep(60)"])
own = bytearray(100_000_000)
file = pathlib.Path({str(tmp_path)!r}, "file")
file.write_bytes(bytes(100_000_000))
with file.open("rb") as opened:
    mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    sum(mapped[::4096])
    started = time.process_time()
    while time.process_time() < started + 0.3:
        pass
time.sleep(1)
child.kill()
file.unlink()
print("done")
"""
    usage, printed = run_monitored(["-c", program], tmp_path)
    assert printed == "done\n"
    assert 200e6 < usage.own < 260e6
    assert 295e6 < usage.resident < 400e6
    assert 0.3 <= usage.cpu_s
    assert (usage.disk, folder_bytes(tmp_path)) == (10**8, 0)
    with pytest.raises(IdxError, match=r"status 3: out of luck"):
        run_monitored(["-c", "import sys; print('out of luck', file=sys.stderr); sys.exit(3)"], tmp_path)


def test_growth_of_memory_is_that_of_the_line() -> None:
    seconds = [0.0, 1.0, 2.0, 4.0]
    assert fitted_growth(seconds, [5.0 + 3.0 * at for at in seconds]) == pytest.approx((12.0, 5.0))


def test_ratios_of_commits_are_of_the_same_round() -> None:
    (row,) = table({"work": {"before": [10.0, 20.0, 40.0], "now": [20.0, 10.0, 30.0]}})
    assert (row["before, best /s"], row["now, best /s"], row["ratio"], row["least"], row["largest"]) == (40, 30, 0.75, 0.5, 2)
