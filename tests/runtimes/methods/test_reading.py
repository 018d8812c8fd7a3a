"""Noise and random order of passages, in every method that reads passages of a search."""

from __future__ import annotations

from typing import Any

import pytest

from tests.runtimes.methods.driving import Driven, drive, passages
from wikidx.base.errors import InputError
from wikidx.corpora.passage import Passage
from wikidx.runtimes.llms.base import AskYesNo, MeanNll, Score
from wikidx.runtimes.methods import METHODS, find_method
from wikidx.runtimes.methods.reading import EXPANSION
from wikidx.runtimes.methods.requests import Compare, Request, Retrieve

OWN = passages("one", "two", "three", "four")
OTHER = [Passage(f"x{number}", f"X{number}", "noise") for number in range(1, 5)]
READERS = (
    "rag",
    "iter_retgen",
    "ircot",
    "self_ask",
    "ra_isf",
    "refeed",
    "retrorag",
    "self_reasoning",
    "metarag",
    "searchain",
    "skr",
    "adaptive_rag",
    "chain_of_note",
    "flare",
    "replug",
    "recomp",
    "self_rag",
    "crag",
)
WORDINGS = "1. other words\n2. WHO\n3. Other words!\n4. third\n5. fourth\n6. fifth"


def run(name: str, question: str = "Who?", **values: Any) -> Driven:  # noqa: ANN401 - an option
    """Run a method whose model says nothing of use; the question "Else?" finds the noise."""

    def reply(request: Request) -> Any:  # noqa: ANN401 - a canned result
        if isinstance(request, Retrieve):
            return OTHER if request.queries == ("Else?",) else OWN
        if EXPANSION in request.path:
            return [WORDINGS] if request.n == 1 else [f"Passage  {number}.\n" for number in range(request.n)]  # type: ignore[union-attr]
        if isinstance(request, Score):
            return [0.9] * len(request.texts)
        if isinstance(request, Compare):
            return [number % 2 for number in range(len(request.others))]
        return (
            0.1
            if isinstance(request, AskYesNo | MeanNll)
            else {"self_ask": "Follow up: who?", "searchain": "[Unsolved Query]: who?"}.get(name, "no")
        )

    method = find_method(name)
    searching = {"retrieve": "always"} if name == "self_rag" else {}
    return drive(method.run(question, method.options(**searching, **values)), reply)


def read(driven: Driven) -> list[str]:
    """Return the titles that the first prompt with passages shows, in order."""
    prompts = [prompt for role in ("answer", "reader", "evidence") for prompt in driven.prompts(role) if "[1] " in prompt]
    lines = prompts[0].rpartition("[1] ")[1:] if prompts else ()
    shown = "".join(lines).splitlines()
    return [line.partition("] ")[2] for line in shown if line.startswith("[")]


def test_readers_and_no_others_have_the_options() -> None:
    assert {name for name in METHODS if hasattr(find_method(name).options(), "noise")} == {*READERS}


@pytest.mark.parametrize("name", READERS)
def test_each_search_has_noise_of_another_question_at_the_same_time(name: str) -> None:
    driven = run(name, noise=0.5, noise_questions=("Who?", "Else?"))
    searches = [[request.queries for request in level if isinstance(request, Retrieve)] for level in driven.levels]
    assert all(level.count(("Else?",)) == len(level) / 2 for level in searches)
    assert any(searches)
    assert set(driven.answer.detail["noise"]) <= {passage.id for passage in OTHER}
    assert len(driven.answer.detail["noise"]) >= 2
    assert "noise" not in run(name).answer.detail


@pytest.mark.parametrize("name", ["rag", "iter_retgen", "ircot", "refeed", "self_reasoning"])
def test_half_of_the_passages_are_replaced_in_their_places(name: str) -> None:
    own = [passage.title for passage in OWN]
    assert read(run(name)) == own
    noisy = read(run(name, noise=0.5, noise_questions=("Else?",)))
    assert sum(title.startswith("X") for title in noisy) == 2
    assert all(title.startswith("X") or title == own[place] for place, title in enumerate(noisy))
    shuffled = [read(run(name, shuffle=True, seed=seed)) for seed in range(8)]
    assert all(sorted(order) == own for order in shuffled)
    assert len({*map(tuple, shuffled)}) > 3


def test_question_and_seed_determine_what_is_drawn() -> None:
    def drawn(question: str, seed: int) -> tuple[str, ...]:
        return tuple(read(run("rag", question, noise=0.5, shuffle=True, noise_questions=("Else?",), seed=seed)))

    assert drawn("Who?", 1) == drawn("Who?", 1)
    assert len({drawn("Who?", seed) for seed in range(8)}) > 3
    assert len({drawn(f"Who {number}?", 1) for number in range(8)}) > 3


@pytest.mark.parametrize(("noise", "n_replaced"), [(0.2, 1), (0.625, 3), (1.0, 4), (0.1, 0)])
def test_a_share_of_the_passages_is_replaced_with_halves_rounded_up(noise: float, n_replaced: int) -> None:
    drawn = [read(run("rag", noise=noise, noise_questions=("Else?",), seed=seed)) for seed in range(20)]
    assert [sum(title.startswith("X") for title in titles) for titles in drawn] == [n_replaced] * 20
    replaced = {place for titles in drawn for place, title in enumerate(titles) if title.startswith("X")}
    assert replaced == (set(range(4)) if n_replaced else set())


def test_noise_that_the_question_finds_itself_is_none() -> None:
    rag = find_method("rag")
    new = Passage("new", "T", "x")
    driven = drive(rag.run("Who?", rag.options(k=4, noise=0.5, noise_questions=("Else?",))), [OWN, [*OWN[:3], new], "no"])
    assert driven.answer.detail["noise"] == ["new"]


def test_noise_from_nowhere_is_refused() -> None:
    with pytest.raises(InputError, match="noise is 0.5, but nothing says where it comes from"):
        find_method("rag").options(noise=0.5)
    with pytest.raises(InputError, match="noise_questions holds only 'Who"):
        run("rag", noise=0.5, noise_questions=("Who?",))
