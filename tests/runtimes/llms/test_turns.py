"""Chat templates without a system turn, with strict alternation, or that continue no answer: turns are folded, with a note."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runtimes.llms.calling import SHORT, Open, error_of, gens
from tests.runtimes.llms.endpoint import Endpoint
from tests.runtimes.llms.tiny import CHAT, save_tiny_llama
from wikidx.runtimes.llms.base import AskYesNo, Choice, Decoding, Generate, MeanNll, Message, Nll, Reply, YesNo
from wikidx.runtimes.llms.transformers_engine import TransformersEngine
from wikidx.runtimes.llms.turns import NO_BEGINNING, NO_NEIGHBOURS, NO_SYSTEM_TURN, fold_turns

SYSTEM, USER, BEGUN = Message("system", "Yes or No."), Message("user", "The river"), Message("assistant", "It flows")
ASKED = Generate(prompt=(SYSTEM, USER), decoding=SHORT)
CONTINUED = Generate(prompt=(SYSTEM, USER, BEGUN), decoding=SHORT)
NEIGHBOURS = Generate(prompt=(USER, Message("user", "or not")), decoding=SHORT)

_RAISE = "{{ raise_exception('%s') }}"
_NO_SYSTEM = "{% if messages[0]['role'] == 'system' %}" + _RAISE % "System role not supported" + "{% endif %}"
_ALTERNATE = (
    "{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    + _RAISE % "Conversation roles must alternate user/assistant/user/assistant/..."
    + "{% endif %}{% endfor %}"
)
_NO_BEGINNING = "{% if messages[-1]['role'] == 'assistant' %}" + _RAISE % "Expected last role User" + "{% endif %}"
_DROPS_SYSTEM = CHAT.replace("{% for message in messages %}", "{% for message in messages if message['role'] != 'system' %}", 1)
FAKE_TEMPLATES = {
    "gemma": _NO_SYSTEM + _ALTERNATE + CHAT,
    "mistral": _ALTERNATE + _NO_BEGINNING + CHAT,
    "prefill": _NO_BEGINNING + CHAT,
    "dropping": _DROPS_SYSTEM,
    "broken": "{{ messages[0].content.nothing.at_all }}" + CHAT,
}
"""Fakes of templates: each refuses, or drops, what a known family of models does."""

BOTH = (NO_SYSTEM_TURN, NO_BEGINNING)


def test_folding_keeps_every_text_in_order() -> None:
    prompt = (SYSTEM, USER, Message("assistant", "no"), Message("user", "And?"), BEGUN)
    folded, notes = fold_turns(prompt, {"system", "beginning"})
    assert [turn.role for turn in folded] == ["user", "assistant", "user"]
    assert [turn.content for turn in folded] == ["Yes or No.\n\nThe river", "no", "And?\n\nIt flows"]
    assert notes == BOTH
    assert fold_turns(prompt, frozenset()) == (prompt, ())


@pytest.mark.parametrize(
    ("template", "asked", "continued", "neighbours"),
    [
        ("gemma", (NO_SYSTEM_TURN,), (NO_SYSTEM_TURN,), (NO_NEIGHBOURS,)),
        ("mistral", (NO_SYSTEM_TURN,), BOTH, (NO_NEIGHBOURS,)),
        ("prefill", (), (NO_BEGINNING,), ()),
        ("dropping", (NO_SYSTEM_TURN,), (NO_SYSTEM_TURN,), ()),
        ("broken", *[("the chat template refuses the conversation: the turns are joined into one text",)] * 3),
    ],
)
def test_a_checkpoint_whose_template_refuses_turns(
    tmp_path: Path, template: str, asked: tuple[str, ...], continued: tuple[str, ...], neighbours: tuple[str, ...]
) -> None:
    engine = TransformersEngine(str(save_tiny_llama(tmp_path, template=FAKE_TEMPLATES[template])))
    replies = engine.run(
        [ASKED, CONTINUED, NEIGHBOURS, AskYesNo(prompt=CONTINUED.prompt), MeanNll(prompt=ASKED.prompt, continuation=" no")]
    )
    assert [gens(reply)[0].degraded for reply in replies[:3]] == [asked, continued, neighbours]
    judged, scored = replies[3:]
    assert isinstance(judged, Reply)
    assert isinstance(judged.result, YesNo)
    assert judged.result.degraded == continued
    assert isinstance(scored, Reply)
    assert isinstance(scored.result, Nll)
    assert scored.result.degraded == asked


def test_a_folded_prompt_is_the_template_s_of_the_folded_turns(tmp_path: Path) -> None:
    refusing = TransformersEngine(str(save_tiny_llama(tmp_path / "gemma", template=FAKE_TEMPLATES["gemma"])))
    plain = TransformersEngine(str(save_tiny_llama(tmp_path / "plain")))
    folded = Generate(prompt=(Message("user", "Yes or No.\n\nThe river"),), decoding=SHORT)
    assert gens(refusing.run([ASKED])[0])[0].token_ids == gens(plain.run([folded])[0])[0].token_ids


def test_a_checkpoint_without_a_template_ends_where_another_turn_would_begin(tmp_path: Path) -> None:
    engine = TransformersEngine(str(save_tiny_llama(tmp_path, template=None)))
    prompt = (Message("user", "Question: who?\nAnswer:"),)
    for text, kept in [("\nyes\nIt is.", "\nyes"), (" yes\nQuestion: who wrote it?", " yes"), (" yes", " yes")]:
        (gen,) = gens(engine.run([Generate(prompt=prompt, decoding=Decoding(max_tokens=40), schema=Choice((text,)))])[0])
        assert (gen.text, gen.finish) == (kept, "stop")
        assert len(gen.token_ids or ()) <= len(engine._ids(kept + "\nQuestion:"))
    plain, scored = engine.run([MeanNll(prompt="Question: who?\nAnswer:", continuation=" yes"), MeanNll(prompt=prompt, continuation="yes")])
    assert isinstance(plain, Reply)
    assert isinstance(scored, Reply)
    assert isinstance(plain.result, Nll)
    assert isinstance(scored.result, Nll)
    assert scored.result.total == pytest.approx(plain.result.total)


def gemma(roles: list[str]) -> tuple[int, str] | None:
    return (400, "System role not supported") if "system" in roles else None


def old_llama_cpp(roles: list[str]) -> tuple[int, str] | None:
    """Strict alternation, refused with a status of 500."""
    pairs = zip(roles, ["user", "assistant"] * len(roles), strict=False)
    is_strict = all(role == expected for role, expected in pairs)
    return None if is_strict else (500, "Conversation roles must alternate user/assistant/user/assistant/... at row 1, column 200")


def mistral(roles: list[str]) -> tuple[int, str] | None:
    message = "Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant"
    return (400, message) if roles[-1:] == ["assistant"] else None


def llama_cpp_prefill(roles: list[str]) -> tuple[int, str] | None:
    return (400, "Assistant response prefill is incompatible with enable_thinking.") if roles[-1:] == ["assistant"] else None


def lm_studio(roles: list[str]) -> tuple[int, str] | None:
    """Each refusal, one after the other."""
    message = 'Error rendering prompt with jinja template: "Only user and assistant roles are supported!"'
    return (400, message) if "system" in roles else mistral(roles)


@pytest.mark.parametrize(
    ("fake", "notes", "n_requests"),
    [
        (gemma, (NO_SYSTEM_TURN,), 2),
        (old_llama_cpp, (NO_SYSTEM_TURN,), 2),
        (mistral, (NO_BEGINNING,), 2),
        (llama_cpp_prefill, (NO_BEGINNING,), 2),
        (lm_studio, BOTH, 3),
    ],
)
def test_an_endpoint_whose_template_refuses_turns(
    opened: Open, endpoint: Endpoint, fake: Callable[[list[str]], tuple[int, str] | None], notes: tuple[str, ...], n_requests: int
) -> None:
    endpoint.refuses_turns = fake
    model = opened()
    for _ in range(2):
        assert gens(model.run([CONTINUED])[0])[0].degraded == notes
    assert len(endpoint.bodies) == n_requests + 1  # the second call knows what the first one learned
    contents = "\n\n".join(turn["content"] for turn in endpoint.bodies[-1]["messages"])
    assert contents == "Yes or No.\n\nThe river\n\nIt flows"


def test_an_endpoint_that_refuses_all_turns_costs_that_call_only(opened: Open, endpoint: Endpoint) -> None:
    endpoint.refuses_turns = lambda roles: (400, "unknown role") if roles else None
    model = opened()
    assert "refuses the request (400: unknown role)" in error_of(model.run([CONTINUED])[0])
    assert len(endpoint.bodies) == 3
    endpoint.refuses_turns = lambda roles: None
    assert gens(model.run([CONTINUED])[0])[0].degraded == ()  # nothing was learned from what did not help
