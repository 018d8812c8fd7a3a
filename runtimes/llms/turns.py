"""Conversations in the forms that restrictive chat templates accept, and as one text for models without a chat template.

Some templates refuse a system turn, two turns of one speaker in a row, or an answer that is to be continued; some drop a system turn. Such
turns are *folded*: a system turn becomes part of the user's first turn, the beginning of an answer becomes part of the user's last turn.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from dataclasses import replace
from typing import Literal, TypeVar

from .base import Call, Gen, Generate, MeanNll
from .prompts import Chat, Message, Prompt, TokenIds
from .text import NO_TEMPLATE

_C = TypeVar("_C", bound=Call)
Fold = Literal["system", "beginning"]

FOLDS: tuple[frozenset[Fold], ...] = (
    frozenset(),
    frozenset({"system"}),
    frozenset({"beginning"}),
    frozenset({"system", "beginning"}),
)
"""Combinations of folds, in the order in which they are tried."""

NO_SYSTEM_TURN = "the chat template has no system turn: its text is part of the user turn"
NO_NEIGHBOURS = "the chat template allows no adjacent turns of one role: they are joined"
NO_BEGINNING = "the chat template cannot continue an answer: its beginning is part of the user turn"

_BETWEEN = "\n\n"
_LABEL = re.compile(r"^[A-Z][\w ]*:", re.MULTILINE)
_ONE_LINE = ("Answer:", "Search query:", "Verdict:")  # labels of replies of one line


def fold_turns(prompt: Chat, folds: Set[Fold]) -> tuple[Chat, tuple[str, ...]]:
    """Return a conversation with its turns folded, and descriptions of the changes.

    "system" also joins neighbouring turns of one speaker. The result has no spans of passages.
    """
    roles = ["user" if turn.role == "system" and "system" in folds else turn.role for turn in prompt]
    if "beginning" in folds and roles[-1] == "assistant":
        roles[-1] = "user"
    turns: list[Message] = []
    for role, turn in zip(roles, prompt, strict=True) if folds else ():
        if turns and turns[-1].role == role:
            turns[-1] = Message(role, f"{turns[-1].content}{_BETWEEN}{turn.content}")
        else:
            turns.append(Message(role, turn.content))
    folded = tuple(turns) if folds else prompt
    return folded, _describe(prompt, folded, roles)


def next_fold(prompt: Chat, folds: Set[Fold], likeliest: Fold) -> Fold | None:
    """Return the fold to add to ``folds``: ``likeliest`` if it changes the conversation, else the other one; None if neither does."""
    others: tuple[Fold, ...] = ("system", "beginning") if likeliest == "system" else ("beginning", "system")
    shown = _shown(prompt, folds)
    return next((fold for fold in others if fold not in folds and _shown(prompt, {*folds, fold}) != shown), None)


def _shown(prompt: Chat, folds: Set[Fold]) -> list[tuple[str, str]]:
    return [(turn.role, turn.content) for turn in fold_turns(prompt, folds)[0]]


def _describe(prompt: Chat, folded: Chat, roles: Sequence[str]) -> tuple[str, ...]:
    changed = [turn.role for turn, role in zip(prompt, roles, strict=True) if turn.role != role]
    notes = {"system": NO_SYSTEM_TURN, "assistant": NO_BEGINNING}
    described = tuple(dict.fromkeys(notes[role] for role in changed))
    return described if described or len(folded) == len(prompt) else (NO_NEIGHBOURS,)


def as_text(prompt: Chat) -> str:
    """Return a conversation as one text for a model without a chat template.

    Blank lines separate the turns. A reply follows the label at the end of the user's turn, begins with a label of its own, or follows the
    label "Reply:". The text ends where the model continues.
    """
    text = ""
    for turn in (*prompt, None):
        if turn is None:
            text = text if prompt[-1].role == "assistant" else (text + _reply_mark(text, "")).rstrip(" ")
        elif turn.role == "assistant":
            text += _reply_mark(text, turn.content) + turn.content
        else:
            text += f"{_BETWEEN if text else ''}{turn.content}"
    return text


def _reply_mark(text: str, reply: str) -> str:
    """Return the text between the user's turn and a reply."""
    if not text or text.endswith(":"):
        return " " if text else ""
    return "\n" if _LABEL.match(reply) else "\nReply: "


def adapt_to_text(call: _C, prompt: Chat) -> _C:
    """Return a call about a conversation as it is for the conversation's text.

    A text that is scored begins with a space. A generated text also ends before a line with a label of the user's last turn, such as
    "Question:"; ``end_turn`` ends it where the reply ends.
    """
    if isinstance(call, MeanNll):
        reply = call.continuation.lstrip()
        return replace(call, continuation=f" {reply}" if reply else "")
    if isinstance(call, Generate):
        asked = _last_question(prompt)
        labels = _LABEL.findall(asked[: asked.rfind("\n") + 1] if asked.endswith(":") else asked)
        stop = dict.fromkeys((*call.decoding.stop, *(f"\n{label}" for label in (*labels[:1], *labels[-1:]))))
        return replace(call, decoding=replace(call.decoding, stop=tuple(stop)))
    return call


def end_turn(gen: Gen, prompt: Prompt) -> Gen:
    """Return a text up to the end of the reply if the prompt was a conversation as one text; other texts are returned unchanged."""
    is_text = NO_TEMPLATE in gen.degraded and not isinstance(prompt, str | TokenIds)
    end = find_end(gen.text, reply_end(prompt)) if is_text else None
    return gen if end is None else replace(gen.part(0, end), finish="stop")


def reply_end(prompt: Prompt) -> str:
    """Return the text that ends the reply in the text of a conversation; empty: none.

    A line break ends a reply of one line, such as the reply to "Answer:"; a blank line ends other replies. Neither does if a reply of the
    demonstrations has one.
    """
    if isinstance(prompt, str | TokenIds):
        return ""
    replies = [turn.content for turn in prompt[:-1] if turn.role == "assistant"]
    ends = ["\n"] * _last_question(prompt).endswith(_ONE_LINE) + [_BETWEEN]
    return next((end for end in ends if not any(end in reply for reply in replies)), "")


def find_end(text: str, end: str) -> int | None:
    """Return the offset of ``end`` after the first word of a text; None if it does not occur there, or is empty.

    A stop text would not do, because some models begin with a line break.
    """
    offset = text.find(end, len(text) - len(text.lstrip())) if end else -1
    return None if offset < 0 else offset


def _last_question(prompt: Chat) -> str:
    """Return the user's last turn without passages."""
    return _without_passages(next((turn for turn in reversed(prompt) if turn.role == "user"), prompt[-1]))


def _without_passages(turn: Message) -> str:
    content = turn.content
    for start, end in reversed(turn.passages):
        content = content[:start] + content[end:]
    return content
