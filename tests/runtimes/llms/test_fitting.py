"""Prompts cut to a budget: passages are cut, the rest never is; turns folded without a loss. Tokens are words here."""

from __future__ import annotations

import pytest

from wikidx.runtimes.errors import PromptTooLong
from wikidx.runtimes.llms.fitting import cut, fit
from wikidx.runtimes.llms.prompts import Chat, Message, TokenIds, prompt_text
from wikidx.runtimes.llms.turns import NO_BEGINNING, NO_SYSTEM_TURN, fold_turns
from wikidx.runtimes.methods.templates import Blocks, Template, parse

QA = Template(
    "qa",
    parse("[system]\nAnswer briefly.\n[user]\n{passages}\n\nQuestion: {question}"),
    ({"passages": "shown", "question": "q", "output": "o"},),
)


def words(prompt: object) -> int:
    return len(prompt_text(prompt).split())  # type: ignore[arg-type]


def asked(*passages: str, shots: int = 0) -> Chat:
    return QA(passages=Blocks(passages), question="who is it?", shots=shots)


LONG = "one two three four five six seven eight nine ten eleven twelve"


def test_a_prompt_that_fits_stays_as_it_is() -> None:
    prompt = asked(LONG, LONG)
    assert fit(prompt, words(prompt), words) == (prompt, 0, 2 * len(LONG) + 2)


@pytest.mark.parametrize("budget", range(6, 31))
def test_the_last_passage_is_cut_first_and_the_question_never(budget: int) -> None:
    prompt = asked(LONG, LONG)
    fitted = fit(prompt, budget, words)
    text = prompt_text(fitted.prompt)
    assert words(fitted.prompt) <= budget
    assert text.startswith("Answer briefly.\n\n")
    assert text.endswith("\n\nQuestion: who is it?")
    shown = text.removeprefix("Answer briefly.\n\n").removesuffix("\n\nQuestion: who is it?")
    assert f"{LONG}\n\n{LONG}".startswith(shown)
    assert all(word in LONG.split() for word in shown.split())  # cut between words
    assert fitted.cut == 2 * len(LONG) + 2 - len(shown)
    # the most that fits: 6 words besides the passages, and of each at least 40 characters: 9 words, or 8 and a blank line
    room = budget - 6
    assert len(shown.split()) == min(24, room if room >= 20 or 9 <= room <= 12 else 12 if room > 12 else 0)


def test_demonstrations_stay() -> None:
    fitted = fit(asked(LONG, shots=1), 10, words)
    assert [message.content for message in fitted.prompt if isinstance(message, Message)] == [
        "Answer briefly.",
        "shown\n\nQuestion: q",
        "o",
        "\n\nQuestion: who is it?",
    ]


def test_what_cannot_be_cut_enough_is_refused() -> None:
    with pytest.raises(PromptTooLong, match=r"the prompt has 6 tokens besides its passages, the model takes 5"):
        fit(asked(LONG), 5, words)
    with pytest.raises(PromptTooLong, match=r"the prompt has 3 tokens, the model takes 2"):
        fit("one two three", 2, words)


def test_texts_and_ids_have_nothing_to_cut() -> None:
    assert cut("text", 3) == "text"
    assert cut(TokenIds((1, 2)), 3) == TokenIds((1, 2))


def test_a_text_without_spaces_can_be_cut() -> None:
    passage = "長" * 200
    fitted = fit(asked(passage), 120, lambda prompt: len(prompt_text(prompt)))
    assert prompt_text(fitted.prompt).count("長") == 0  # no word ends in it: it goes as a whole


def test_folding_keeps_every_text_in_order() -> None:
    prompt = (
        Message("system", "Yes or No."),
        Message("user", "The river"),
        Message("assistant", "no"),
        Message("user", "And?"),
        Message("assistant", "It flows"),
    )
    folded, notes = fold_turns(prompt, {"system", "beginning"})
    assert [tuple(turn[:2]) for turn in folded] == [("user", "Yes or No.\n\nThe river"), ("assistant", "no"), ("user", "And?\n\nIt flows")]
    assert notes == (NO_SYSTEM_TURN, NO_BEGINNING)
    assert fold_turns(prompt, frozenset()) == (prompt, ())
