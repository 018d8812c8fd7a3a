"""Selection of questions: a paper's protocol, a random sample, or all."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from wikidx.corpora.errors import InputError
from wikidx.corpora.registry import near_names

from .base import Question
from .protocols import PROTOCOLS, Protocol


class Selection(NamedTuple):
    """A selection of questions.

    Attributes:
        protocol: a name in ``PROTOCOLS``, applied first.
        n: size of a random sample of the remaining questions; None: all of them.
        seed: of the sample.
    """

    protocol: str | None = None
    n: int | None = None
    seed: int = 0

    def about(self) -> dict[str, Any]:
        """Return the record of the selection, as JSON values; empty if all questions are selected."""
        protocol = {} if self.protocol is None else {"protocol": self.protocol}
        return protocol | ({} if self.n is None else {"sample": {"n": self.n, "seed": self.seed}})


def select(questions: Sequence[Question], selection: Selection) -> list[Question]:
    """Return the selected questions, in their order.

    Raises:
        UnknownNameError: there is no such protocol.
        InputError: the questions are not those of the protocol, or fewer than the sample.
    """
    chosen = list(questions)
    if selection.protocol is not None:
        if selection.protocol not in PROTOCOLS:
            raise near_names("protocol", selection.protocol, PROTOCOLS)
        chosen = follow(PROTOCOLS[selection.protocol], chosen)
    return chosen if selection.n is None else sample(chosen, selection.n, selection.seed)


def sample(questions: Sequence[Question], n: int, seed: int) -> list[Question]:
    """Return n questions drawn at random without replacement, in their order.

    The sample consists of the questions with the smallest SHA-256 of seed and text. It does not depend on order, ids, file format or
    Python's version, and larger samples contain smaller ones. Of equal texts, the one with the smaller id comes first.

    Raises:
        InputError: there are fewer than n, or n is not positive.
    """
    if not 1 <= n <= len(questions):
        raise InputError(
            f"a sample of {n:,} of {len(questions):,} questions cannot be drawn: give --sample a number from 1 to {len(questions)}"
        )
    lots = [(hashlib.sha256(f"{seed}\n{question.text}".encode()).digest(), question.id) for question in questions]
    return [questions[at] for at in sorted(sorted(range(len(questions)), key=lots.__getitem__)[:n])]


def follow(protocol: Protocol, questions: Sequence[Question]) -> list[Question]:
    """Return the questions of a protocol, in its order.

    Raises:
        InputError: the number of questions in the file, or of those selected, is not the protocol's.
    """
    if protocol.of and len(questions) not in protocol.of:
        sizes = " or ".join(f"{size:,}" for size in protocol.of)
        raise InputError(f"the protocol '{protocol.name}' is on the {sizes} questions of {protocol.file}: this file has {len(questions):,}")
    chosen = list(questions)
    if protocol.type is not None:
        chosen = [one for one in chosen if one.gold.get("type") == protocol.type]
    if protocol.popularity_below is not None:
        chosen = [one for one in chosen if one.gold.get("popularity", protocol.popularity_below) < protocol.popularity_below]
    if protocol.left_out:
        if len(chosen) <= protocol.left_out:
            raise InputError(
                f"the protocol '{protocol.name}' asks all but {protocol.left_out:,} questions, and this file has {len(chosen):,}: "
                f"{protocol.file} is meant"
            )
        drawn = {one.id for one in sample(chosen, protocol.left_out, protocol.seed)}
        chosen = [one for one in chosen if one.id not in drawn]
    if protocol.is_shuffled:
        random.Random(protocol.seed).shuffle(chosen)
    chosen = chosen[: protocol.first]
    if not chosen or protocol.n not in (None, len(chosen)):
        wanted = "some" if protocol.n is None else f"{protocol.n:,}"
        raise InputError(
            f"the protocol '{protocol.name}' asks {wanted} questions, and this file has {len(chosen):,} of them: {protocol.file} is meant"
        )
    return chosen
