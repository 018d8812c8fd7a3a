"""The ensemble: the initial answer or the refined one, by the mean negative log-likelihood of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from wikidx.runtimes.llms.base import Chat, Message
from wikidx.runtimes.methods.requests import Run, mean_nll, note, together
from wikidx.runtimes.methods.written_answers import Draft, finite

from .options import RefeedOptions


class Kept(NamedTuple):
    """The answer that is kept.

    Attributes:
        draft: the answer.
        initial: the initial answer compared; None: there was none.
        refined: the refined answer.
        because: the reason of the choice.
    """

    draft: Draft
    initial: Draft | None
    refined: Draft
    because: str


def ensemble(initial: Sequence[Draft], refined: Draft, prompts: tuple[Chat, Chat], options: RefeedOptions) -> Run[Kept]:
    """Keep the initial answer if its mean NLL is lower than the refined answer's, else the refined one.

    Blank answers are never compared; if an NLL is unknown, the refined answer is kept.

    Args:
        initial: the initial answers; the likeliest is compared with the refined one, the first of equally likely ones.
        refined: the refined answer.
        prompts: of the initial answers and of the refined one.
        options: of the method.
    """
    if not options.ensemble:
        return Kept(refined, None, refined, "no ensemble")
    drawn = dict.fromkeys(one for one in initial if one.answer)
    *scored, refined = yield from together([*(_scored(one, prompts[0], options) for one in drawn), _scored(refined, prompts[1], options)])
    likeliest = min(scored, key=lambda one: math.inf if one.nll is None else one.nll, default=None)
    if likeliest is None or not refined.answer:
        return Kept(likeliest or refined, likeliest, refined, "the other is blank")
    if likeliest.nll is None or refined.nll is None:
        yield from note("no log-probabilities: the refined answer is kept")
        return Kept(refined, likeliest, refined, "no log-probabilities")
    return Kept(likeliest if likeliest.nll < refined.nll else refined, likeliest, refined, "mean NLL")


def _scored(one: Draft, prompt: Chat, options: RefeedOptions) -> Run[Draft]:
    """Return a draft with the NLL to compare; the one of its generation needs no request."""
    if not one.answer or options.nll == "output":
        return one
    lead = one.text[: one.start].rstrip() if options.nll == "answer" else ""
    end = one.start + len(one.answer) if options.nll == "answer" else len(one.text)
    given = (*prompt, Message("assistant", lead)) if lead else prompt
    return one._replace(nll=finite((yield from mean_nll(given, one.text[len(lead) : end])).mean))
