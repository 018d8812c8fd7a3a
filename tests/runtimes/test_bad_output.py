"""With any model output and without any passages, every method terminates, and its prediction, which can be written, has all costs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.runtimes.every_method import short_options
from wikidx.retrievers.base import Ranking
from wikidx.retrievers.options import SearchOptions
from wikidx.runtimes.execution.executor import execute
from wikidx.runtimes.execution.rehearsal import StandInSearcher, stand_in_services
from wikidx.runtimes.execution.results import Prediction, prediction_to_json
from wikidx.runtimes.execution.runs import open_run, read_predictions
from wikidx.runtimes.llms.base import AskYesNo, Call, Gen, Generate, MeanNll, Nll, Score, YesNo
from wikidx.runtimes.llms.prompts import Choice
from wikidx.runtimes.llms.scripted import Scripted, ScriptedLLM
from wikidx.runtimes.methods import METHODS, find_method
from wikidx.runtimes.questions import Question

DEFAULTS = SearchOptions()
TEXTS = {
    "nothing": "",
    "blank": " \n\n\t",
    "no JSON": "I do not know what JSON is.",
    "JSON cut off": '{"relevant": true, "cite_list": [{"cite": "[1]", "cite_content": "te',
    "other JSON": '[{"answer": {"answer": [null, 1.5]}}]',
    "brackets": '{"a": [' * 1_000,
    "endless list": "\n".join(f"{number}. item {number}?" for number in range(1_000)),
    "one endless line": "word " * 2_000,
    "markers": "Follow up:\nSo the final answer is:\nSearch[\nFinish[\nThought 1:",
    "not ASCII": "Zürich – 東京, ‏ירושלים 🗼 e\u0301",
}


class EmptySearcher(StandInSearcher):
    """Finds nothing."""

    def search_groups(self, groups: Sequence[Sequence[str]], options: SearchOptions = DEFAULTS) -> list[Ranking]:
        return [Ranking() for _ in groups]


def predicted(name: str, text: str, searcher: StandInSearcher) -> Prediction:
    """Run a method whose model always gives one output, without logprobs and with neither yes nor no among its tokens."""

    def answer(call: Call) -> Scripted:
        if isinstance(call, AskYesNo):
            return YesNo(p_positive=0.0, p_negative=0.0)
        if isinstance(call, MeanNll):
            return Nll(total=None, n_tokens=0)
        if isinstance(call, Score):
            return [0.0] * len(call.texts)
        chosen = call.schema.texts[0] if isinstance(call, Generate) and isinstance(call.schema, Choice) else text
        return [Gen(text=chosen, finish="length")] * call.n

    method = find_method(name)
    options = method.options(**short_options(name))
    services = dataclasses.replace(stand_in_services(method.roles, ScriptedLLM(answer)), searcher=searcher)
    (prediction,) = execute(lambda question: method.run(question, options), [Question("é", "Où?")], services)
    return prediction


def costs_of_steps(record: dict[str, Any]) -> dict[str, int]:
    """Return the costs of a prediction as its steps tell them."""
    steps = [step for step in record["steps"] if "request" in step]
    calls = [step for step in steps if step["request"] in ("generate", "yes_no", "nll", "mix", "score")]
    searches = [step for step in steps if step["request"] == "retrieve"]
    return {
        "calls": len(calls),
        "prompt_tokens": sum(step["tokens"][0] for step in calls),
        "completion_tokens": sum(step["tokens"][1] for step in calls),
        "searches": len(searches),
        "queries": sum(len(step["queries"]) for step in searches),
        "depth": 1 + max(step["depth"] for step in steps if step["request"] != "truncate"),
    }


@pytest.mark.parametrize("name", METHODS)
def test_a_method_ends_and_its_prediction_is_written(name: str, tmp_path: Path) -> None:
    with open_run(tmp_path, {}, {}) as log:
        for text in TEXTS.values():
            prediction = predicted(name, text, StandInSearcher())
            assert prediction.error is None, text
            assert prediction.cost.calls < 300
            log.append(prediction_to_json(prediction))
            (there,) = dict(read_predictions(tmp_path)).values()
            assert there == json.loads(json.dumps(prediction_to_json(prediction)))
            assert there["id"] == "é"
            assert there["cost"] == costs_of_steps(there), text
    nothing = predicted(name, TEXTS["not ASCII"], EmptySearcher())
    assert (nothing.error, nothing.passages) == (None, ())


def test_an_answer_keeps_its_characters() -> None:
    for name in ("direct", "rag", "genread", "iter_retgen", "refeed"):
        assert predicted(name, TEXTS["not ASCII"], StandInSearcher()).answer == TEXTS["not ASCII"]
