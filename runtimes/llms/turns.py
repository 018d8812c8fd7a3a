"""Conversations in the forms that restrictive chat templates accept.

Some templates refuse a system turn, two turns of one speaker in a row, or an answer that is to be continued; some drop a system turn. Such
turns are *folded*: a system turn becomes part of the user's first turn, the beginning of an answer becomes part of the user's last turn.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Literal

from .base import Chat, Message

Fold = Literal["system", "beginning"]

FOLDS: tuple[frozenset[Fold], ...] = (
    frozenset(),
    frozenset({"system"}),
    frozenset({"beginning"}),
    frozenset({"system", "beginning"}),
)
"""Combinations of folds, in the order in which they are tried."""

NO_SYSTEM_TURN = "the chat template takes no system turn: it is part of the user's"
NO_NEIGHBOURS = "the chat template takes no two turns of one speaker in a row: they are one"
NO_BEGINNING = "the chat template continues no answer: its beginning is part of the user's turn"


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
            turns[-1] = Message(role, f"{turns[-1].content}\n\n{turn.content}")
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
