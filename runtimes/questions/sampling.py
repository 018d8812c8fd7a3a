"""Selection of questions by a paper's protocol and by random sampling."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from wikidx.base.errors import InputError
from wikidx.base.plugins import recorded
from wikidx.base.registry import unknown_name_error

from .base import Question
from .formats import FORMATS
from .own_formats import KIND
from .protocols import PROTOCOLS, Protocol


class Selection(NamedTuple):
    """A selection of questions. The protocol is applied before the sample is drawn.

    Attributes:
        protocol: a name in ``PROTOCOLS``; None: no protocol.
        n: size of a random sample; None: no sampling.
        seed: seed of the sample.
        format: the file's format, as the user named it; None: detected.
    """

    protocol: str | None = None
    n: int | None = None
    seed: int = 0
    format: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the selection, and the checksum of a format that is a plug-in, as JSON values; empty if all questions are selected."""
        protocol = {} if self.protocol is None else {"protocol": self.protocol}
        own = {} if self.format is None else recorded(KIND, self.format, FORMATS)
        return {**protocol, **({} if self.n is None else {"sample": {"n": self.n, "seed": self.seed}}), **own}


def select(questions: Sequence[Question], selection: Selection) -> list[Question]:
    """Return the selected questions, in the protocol's order if there is a protocol, else in the given order.

    Raises:
        UnknownNameError: the protocol is unknown.
        InputError: the number of questions does not fit the protocol or the sample size.
    """
    chosen = list(questions)
    if selection.protocol is not None:
        if selection.protocol not in PROTOCOLS:
            raise unknown_name_error("protocol", selection.protocol, PROTOCOLS)
        chosen = apply_protocol(PROTOCOLS[selection.protocol], chosen)
    return chosen if selection.n is None else sample(chosen, selection.n, selection.seed)


def sample(questions: Sequence[Question], n: int, seed: int) -> list[Question]:
    """Return ``n`` questions sampled without replacement, in the given order.

    The sample consists of the questions with the smallest SHA-256 digests of seed and text. Questions with equal texts are ordered by id.
    The order of the questions and the file format do not affect the sample. A sample contains every smaller sample with the same seed.

    Raises:
        InputError: there are fewer than ``n`` questions, or ``n`` is not positive.
    """
    if not 1 <= n <= len(questions):
        raise InputError(
            f"a sample of {n:,} of {len(questions):,} questions cannot be drawn: give --sample a number from 1 to {len(questions)}"
        )
    digests = [(hashlib.sha256(f"{seed}\n{question.text}".encode()).digest(), question.id) for question in questions]
    return [questions[index] for index in sorted(sorted(range(len(questions)), key=digests.__getitem__)[:n])]


def apply_protocol(protocol: Protocol, questions: Sequence[Question]) -> list[Question]:
    """Return the questions that a protocol selects, in the protocol's order.

    Raises:
        InputError: the number of questions before or after the selection is not the protocol's.
    """
    if protocol.n_in_file and len(questions) not in protocol.n_in_file:
        sizes = " or ".join(f"{size:,}" for size in protocol.n_in_file)
        raise InputError(f"the protocol '{protocol.name}' is on the {sizes} questions of {protocol.file}: this file has {len(questions):,}")
    chosen = list(questions)
    if protocol.type is not None:
        chosen = [question for question in chosen if question.gold.get("type") == protocol.type]
    if protocol.popularity_below is not None:
        chosen = [question for question in chosen if question.gold.get("popularity", protocol.popularity_below) < protocol.popularity_below]
    if protocol.n_excluded:
        if len(chosen) <= protocol.n_excluded:
            raise InputError(
                f"the protocol '{protocol.name}' asks all but {protocol.n_excluded:,} questions, and this file has {len(chosen):,}: "
                f"{protocol.file} is meant"
            )
        excluded = {question.id for question in sample(chosen, protocol.n_excluded, protocol.seed)}
        chosen = [question for question in chosen if question.id not in excluded]
    if protocol.is_shuffled:
        random.Random(protocol.seed).shuffle(chosen)
    chosen = chosen[: protocol.n_first]
    if not chosen or protocol.n not in (None, len(chosen)):
        expected = "some" if protocol.n is None else f"{protocol.n:,}"
        raise InputError(
            f"the protocol '{protocol.name}' asks {expected} questions, and this file has {len(chosen):,} of them: {protocol.file} is meant"
        )
    return chosen
