"""The ensemble: choice between initial and refined answer by mean negative log-likelihood (NLL)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from wikidx.runtimes.llms.prompts import Chat, Message
from wikidx.runtimes.methods.requests import gather, mean_nll, note
from wikidx.runtimes.methods.written_answers import Draft, finite_or_none

from .options import RefeedOptions


class Choice(NamedTuple):
    """The choice of an answer.

    Attributes:
        draft: the chosen answer, either ``initial`` or ``refined``.
        initial: the likeliest initial answer; None if all initial answers are blank or the ensemble is off.
        refined: the refined answer.
        reason: the reason for the choice.
    """

    draft: Draft
    initial: Draft | None
    refined: Draft
    reason: str


async def ensemble(initial: Sequence[Draft], refined: Draft, prompts: tuple[Chat, Chat], options: RefeedOptions) -> Choice:
    """Choose the likeliest initial answer if its mean NLL is lower than the refined answer's, else the refined answer.

    Blank initial answers are ignored. If all are blank or the ensemble is off, the refined answer is chosen. If only the refined answer is
    blank, the likeliest initial answer is chosen. If both answers have text but an NLL is unknown, the refined answer is chosen.

    Args:
        initial: candidate initial answers. Among equally likely answers, the first counts as the likeliest.
        refined: the refined answer.
        prompts: the prompt of the initial answers and the prompt of the refined answer.
        options: the method's options.
    """
    if not options.ensemble:
        return Choice(refined, None, refined, "no ensemble")
    samples = dict.fromkeys(draft for draft in initial if draft.answer)
    *scored, refined = await gather(*(_score(draft, prompts[0], options) for draft in samples), _score(refined, prompts[1], options))
    likeliest = min(scored, key=lambda draft: math.inf if draft.nll is None else draft.nll, default=None)
    if likeliest is None or not refined.answer:
        return Choice(likeliest or refined, likeliest, refined, "the other is blank")
    if likeliest.nll is None or refined.nll is None:
        await note("no log-probabilities: the refined answer is kept")
        return Choice(refined, likeliest, refined, "no log-probabilities")
    return Choice(likeliest if likeliest.nll < refined.nll else refined, likeliest, refined, "mean NLL")


async def _score(draft: Draft, prompt: Chat, options: RefeedOptions) -> Draft:
    """Return a draft with the mean NLL of the part that the option ``nll`` selects.

    A blank draft is returned unchanged. If ``nll`` is "output", every draft is returned unchanged, because generation has already set the
    NLL.
    """
    if not draft.answer or options.nll == "output":
        return draft
    prefix = draft.text[: draft.start].rstrip() if options.nll == "answer" else ""
    end = draft.start + len(draft.answer) if options.nll == "answer" else len(draft.text)
    chat = (*prompt, Message("assistant", prefix)) if prefix else prompt
    return draft._replace(nll=finite_or_none((await mean_nll(chat, draft.text[len(prefix) : end])).mean))
