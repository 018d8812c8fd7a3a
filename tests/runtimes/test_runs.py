"""Runs on disk: their files, survival of interruptions, refusals."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.runtimes.command_line import Command, without_times
from wikidx.base.errors import ArtifactCorrupt, InputError, LockedError
from wikidx.base.machine import devices
from wikidx.runtimes.execution import resumable, runs
from wikidx.runtimes.execution.dispatching import Services
from wikidx.runtimes.execution.identity import questions_digest
from wikidx.runtimes.execution.opening import Plan
from wikidx.runtimes.execution.runs import PREDICTIONS, RUN, differences, open_run, read_predictions
from wikidx.runtimes.methods import find_method
from wikidx.runtimes.methods.templates import prompt_hashes

SETTINGS: Mapping[str, Any] = {"method": "rag", "options": {"k": {"value": 5}}, "seed": 0, "search": None}


def record(name: str, error: str | None = None, **more: object) -> dict[str, Any]:
    return {"id": name, "answer": f"é {name}", "error": error, **more}


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / PREDICTIONS).read_bytes().splitlines()]


def test_a_line_is_there_as_soon_as_it_is_appended(tmp_path: Path) -> None:
    with open_run(tmp_path / "a" / "run", SETTINGS, {"command": ["idx"]}) as log:
        assert log.done == {}
        for number in range(3):
            log.append(record(str(number)))
            assert [line["id"] for line in lines(tmp_path / "a" / "run")] == [str(one) for one in range(number + 1)]
    assert lines(tmp_path / "a" / "run")[1] == record("1")
    run_record = json.loads((tmp_path / "a" / "run" / RUN).read_text())
    assert 0 <= run_record["sessions"][0].pop("seconds") < 60
    assert run_record == {"format": 2, "settings": SETTINGS, "sessions": [{"command": ["idx"], "predictions_before": 0}]}


def test_the_time_of_a_run_is_known_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_RECORD_EVERY_S", 0.0)
    for before in range(2):
        with open_run(tmp_path, SETTINGS, {}) as log:
            time.sleep(0.01)
            log.append(record(str(before)))
            sessions = json.loads((tmp_path / RUN).read_text())["sessions"]  # what a kill would leave now
            assert [session["seconds"] >= 0.01 for session in sessions] == [True] * (1 + before)


def test_it_goes_on_behind_whatever_bytes_a_kill_left(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """For every possible length of the file, complete lines count, and an incomplete one is cut off and written again."""
    caplog.set_level("INFO")
    with open_run(tmp_path, SETTINGS, {}) as log:
        for name in ("a", "b"):
            log.append(record(name))
    whole = (tmp_path / PREDICTIONS).read_bytes()
    first = whole.index(b"\n") + 1
    for n_bytes in range(len(whole) + 1):
        (tmp_path / PREDICTIONS).write_bytes(whole[:n_bytes])
        with open_run(tmp_path, SETTINGS, {}) as log:
            done = ["a", "b"][: (n_bytes >= first) + (n_bytes == len(whole))]
            assert list(log.done) == done
            n_cut = n_bytes - (len(whole) if len(done) == 2 else first * len(done))
            assert [f"of {n_cut:,} bytes was cut off" in message for message in caplog.messages] == [True] * (n_cut > 0)
            caplog.clear()
            for name in ("a", "b")[len(done) :]:
                log.append(record(name))
        assert (tmp_path / PREDICTIONS).read_bytes() == whole
    assert len(json.loads((tmp_path / RUN).read_text())["sessions"]) == len(whole) + 2


def test_the_last_line_of_a_question_counts(tmp_path: Path) -> None:
    with open_run(tmp_path, SETTINGS, {}) as log:
        log.append(record("a", "LLMError: down"))
        log.append(record("b"))
    with open_run(tmp_path, SETTINGS, {}) as log:
        assert log.done == {"a": "LLMError: down", "b": None}
        log.append(record("a"))
        assert log.done == {"a": None, "b": None}
    assert [line["id"] for line in lines(tmp_path)] == ["a", "b", "a"]
    assert dict(read_predictions(tmp_path)) == {"a": record("a"), "b": record("b")}


def test_the_lines_are_ordered_when_all_questions_are_finished(tmp_path: Path) -> None:
    """Until then, and after an interruption, they stay in the order in which the questions were finished."""
    with contextlib.suppress(KeyboardInterrupt), open_run(tmp_path, SETTINGS, {}) as log:
        log.order = ["a", "b", "c"]
        log.append(record("c"))
        log.append(record("a", "LLMError: down"))
        raise KeyboardInterrupt
    assert [line["id"] for line in lines(tmp_path)] == ["c", "a"]
    with open_run(tmp_path, SETTINGS, {}) as log:
        log.order = ["a", "b", "c"]
        for name in ("other", "b", "a"):
            log.append(record(name))
    assert lines(tmp_path) == [record("a", "LLMError: down"), record("a"), record("b"), record("c"), record("other")]
    assert sorted(file.name for file in tmp_path.iterdir()) == [PREDICTIONS, RUN]
    with open_run(tmp_path, SETTINGS, {}) as log:
        assert log.done == dict.fromkeys(("a", "b", "c", "other"))


def test_a_run_that_was_ordered_while_another_process_opened_it_is_not_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_run(tmp_path, SETTINGS, {}) as log:
        log.append(record("a"))
    lock = fcntl.flock

    def wait(file: Any, operation: int) -> None:  # noqa: ANN401
        (tmp_path / "ordered").write_bytes((tmp_path / PREDICTIONS).read_bytes())
        (tmp_path / "ordered").replace(tmp_path / PREDICTIONS)
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", wait)
    with pytest.raises(LockedError, match="another process is at work"), open_run(tmp_path, SETTINGS, {}):
        pass


def test_other_settings_are_refused_and_all_of_them_named(tmp_path: Path) -> None:
    with open_run(tmp_path, SETTINGS, {}) as log:
        log.append(record("a"))
    before = {name: (tmp_path / name).read_bytes() for name in (RUN, PREDICTIONS)}
    other = {**SETTINGS, "options": {"k": {"value": 6}, "shots": {"value": 1}}, "search": {"corpus": "sample"}}
    with pytest.raises(InputError) as refused, open_run(tmp_path, other, {}):
        pass
    assert str(refused.value) == (
        f"{tmp_path} holds a run with other settings: options.k.value was 5 and is 6; "
        'options.shots.value was not set and is 1; search.corpus was not set and is "sample": resume it with those, remove this '
        "folder to make the run anew, or take another folder for --out"
    )
    assert {name: (tmp_path / name).read_bytes() for name in (RUN, PREDICTIONS)} == before


def test_differences() -> None:
    assert differences(SETTINGS, SETTINGS) == []
    assert differences({"a": {"b": 1, "c": [1, 2]}}, {"a": {"b": "x" * 100, "c": [1]}, "d": True}) == [
        f'a.b was 1 and is "{"x" * 59}…',
        "a.c was [1, 2] and is [1]",
        "d was not set and is true",
    ]


def test_two_cannot_work_on_one_run(tmp_path: Path) -> None:
    with open_run(tmp_path, SETTINGS, {}), pytest.raises(LockedError, match="another process is at work"), open_run(tmp_path, SETTINGS, {}):
        pass
    with open_run(tmp_path, SETTINGS, {}) as log:
        assert log.done == {}


def test_numbers_that_json_lacks_and_halves_of_characters(tmp_path: Path) -> None:
    with open_run(tmp_path, SETTINGS, {}) as log:
        log.append(record("a", scores=[1.5, float("inf"), {"x": (float("nan"), -float("inf"))}], text="\ud83d!"))
    assert lines(tmp_path) == [record("a", scores=[1.5, None, {"x": [None, None]}], text="\ufffd!")]


@pytest.mark.parametrize(
    ("name", "content", "error", "message"),
    [
        (PREDICTIONS, b'nothing\n{"id": "a", "error": null}\n', ArtifactCorrupt, "line 1 is no prediction"),
        (PREDICTIONS, b'{"id": "a"}\n{"id": "a", "error": null}\n', ArtifactCorrupt, "line 1 is no prediction"),
        (PREDICTIONS, b'{"id": ["a"], "error": null}\n', ArtifactCorrupt, "line 1 is no prediction"),
        (PREDICTIONS, b'{"id": "a", "error": 7}\n', ArtifactCorrupt, "line 1 is no prediction"),
        (RUN, b'{"format": 1', ArtifactCorrupt, "run.json cannot be read"),
        (RUN, b"[]", ArtifactCorrupt, "run.json cannot be read"),
        (RUN, b'{"format": 1, "settings": {}, "sessions": []}', InputError, "a run in format 1, this version of idx writes 2"),
    ],
)
def test_a_corrupt_run_is_refused(tmp_path: Path, name: str, content: bytes, error: type[Exception], message: str) -> None:
    with open_run(tmp_path, SETTINGS, {}) as log:
        log.append(record("a"))
    (tmp_path / name).write_bytes(content)
    with pytest.raises(error, match=message), open_run(tmp_path, SETTINGS, {}):
        pass


def test_predictions_of_an_unknown_run_are_refused(tmp_path: Path) -> None:
    (tmp_path / PREDICTIONS).write_text('{"id": "a", "error": null}\n')
    with pytest.raises(InputError, match="holds predictions.jsonl without run.json"), open_run(tmp_path, SETTINGS, {}):
        pass
    with pytest.raises(InputError, match="there is no run"):
        dict(read_predictions(tmp_path / "none"))


def test_questions_in_flight_suit_the_first_of_several_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others hold vectors, and torch knows no device of several."""
    asked = list[str]()

    def resolve(device: str) -> str:
        asked.append(device)
        return device

    monkeypatch.setattr(devices, "resolve_device", resolve)
    method = find_method("direct")
    plan = Plan(method=method, options=method.options(), llms=["hf:tiny"], device="cuda:1,0")
    assert resumable._suitable_in_flight(plan, Services(llms={})) == resumable._IN_FLIGHT
    assert asked == ["cuda:1"]


def test_a_pipe_in_the_place_of_a_run_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / RUN)
    with pytest.raises(InputError, match="run.json is a pipe or a device"), open_run(tmp_path, SETTINGS, {}):
        pass


def _write_old_run(folder: Path, method: str, script: Path, options: Mapping[str, Any]) -> None:
    """Write a run of three questions as idx did when methods were generators, killed while it wrote the second prediction."""
    recorded = {
        "questions": {"sha256": questions_digest([(one, one, []) for one in ("a?", "b?", "c?")]), "n": 3},
        "method": method,
        "options": {name: {"value": value, "default": value, "origin": origin} for name, (value, origin) in options.items()},
        "prompts": prompt_hashes([method]),
        "models": {"answer": {"backend": "scripted", "model": str(script), "sha256": hashlib.sha256(script.read_bytes()).hexdigest()}},
        **{"search": None, "context": None, "seed": 0, "steps": True},
    }
    session = {
        "started": "2026-11-29T00:20:08Z",
        "command": ["idx", "run"],
        "versions": {"wikidx": "0.1.0"},
        "in_flight": 64,
        "questions": 3,
    }
    folder.mkdir()
    (folder / RUN).write_text(json.dumps({"format": 2, "settings": recorded, "sessions": [{**session, "predictions_before": 0}]}))
    line = (
        '{"id": "a?", "question": "a?", "answer": "as before", "error": null, "passages": [], "detail": {"parse_ok": true}, "degraded": []}'
    )
    (folder / PREDICTIONS).write_text(f"{line}\n{line[:40]}")


def test_a_run_begun_when_methods_were_generators_goes_on_or_is_refused_by_the_names_of_options_that_went(
    idx: Command, script: Callable[..., str], tmp_path: Path
) -> None:
    model = script({"match": "", "text": "Ada"})
    file, asked = Path(model.partition(":")[2]), tmp_path / "asked.jsonl"
    asked.write_text("".join(f'{{"id": "{one}", "question": "{one}"}}\n' for one in ("a?", "b?", "c?")))
    form = {"form": ("short", "ours")}
    _write_old_run(tmp_path / "direct", "direct", file, {**form, "shots": (0, "ours"), "max_tokens": (None, "ours")})
    idx("run", "direct", "--questions", asked, "--llm", model, "--out", tmp_path / "direct")
    idx("run", "direct", "--questions", asked, "--llm", model, "--out", tmp_path / "anew")
    begun, anew = (dict(read_predictions(tmp_path / name)) for name in ("direct", "anew"))
    assert begun["a?"]["answer"] == "as before"
    assert {name: without_times(begun[name]) for name in ("b?", "c?")} == {name: without_times(anew[name]) for name in ("b?", "c?")}
    cot = {"calls": ("one", "paper"), **form, "shots": (4, "paper, open"), "max_tokens": (256, "ours"), "answer_tokens": (32, "ours")}
    _write_old_run(tmp_path / "cot", "cot", file, cot)
    error = idx("run", "cot", "--questions", asked, "--llm", model, "--out", tmp_path / "cot", status=2)
    assert "holds a run with other settings: options.answer_tokens.value was 32 and is not set" in error
    assert len(lines(tmp_path / "direct")) == 3
