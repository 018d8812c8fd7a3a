"""The training sets of RA-ISF's three sub-models (the paper's appendix A): self-knowledge, passage relevance, question decomposition.

The prompts are those of the roles "know", "relevance" and "decompose" of the method ``ra_isf``, the targets are in the form that it parses:
a trained sub-model is used as that role's model.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

from wikidx.corpora.errors import InputError
from wikidx.corpora.passage import Passage
from wikidx.corpora.validation import options
from wikidx.runtimes.evaluation.answers import squad
from wikidx.runtimes.evaluation.by_models.measured import RowMetric
from wikidx.runtimes.llms.base import Chat, Decoding, Message
from wikidx.runtimes.methods.base import Answer, Method, option
from wikidx.runtimes.methods.ra_isf import METHOD as RA_ISF
from wikidx.runtimes.methods.ra_isf import RaIsfOptions
from wikidx.runtimes.methods.ra_isf.sub_models import passage_relevance, self_knowledge
from wikidx.runtimes.methods.ra_isf.tree import Node
from wikidx.runtimes.methods.requests import Run, generate, named, together
from wikidx.runtimes.methods.sub_questions import sub_questions
from wikidx.runtimes.methods.templates import template, unnumbered

from .base import Builder, Collected, Example, Made, Tally
from .sets import QuestionSet, drawn

_LABELS = {"words": ("yes", "no"), "know": ("know", "unknow"), "relevance": ("relevance", "irrelevance")}
_ABOUT = {
    "know": "M_know: question -> whether the model knows the answer",
    "relevance": "M_rel: question and passage -> whether the passage is relevant",
    "decompose": "M_decom: question -> sub-questions",
}


@options
class RaIsfAsking:
    """Options of asking the models."""

    per_set: int = option(1000, "paper", "questions drawn from each set", least=1)
    know: Literal["answers", "asked", "off"] = option(
        "answers",
        "paper",
        "what is known: compare the model's own answers with the gold ones (appendix A.1), or have a model say whether it knows (section "
        "4.5, where the labels are GPT-4's); off: no set for this sub-model",
    )
    relevance: bool = option(True, "paper", "judge each retrieved passage (appendix A.2)")
    decompose: bool = option(True, "paper", "break each question down (appendix A.3)")
    k: int = option(5, "paper", "passages judged for a question, as in appendix E", least=1)
    max_query_tokens: int = option(64, "paper", "tokens of a search query, taken from the question's end; 0: no limit")
    remove_question: bool = option(True, "paper", "leave out passages that contain the question (section 4.3)")
    shots: int = option(4, "proposed", "demonstrations before each prompt; the paper says few-shot and no number")
    answer_form: Literal["short", "yes_no"] = option(
        "short",
        "proposed",
        "how the model answers what it is to know: shortly, or yes or no as StrategyQA has it",
    )
    refer_back: bool = option(False, "proposed", "sub-questions may point to earlier answers as #1, #2; set the method's switch alike")
    max_tokens: int = option(256, "proposed", "tokens of an answer, and of a list of sub-questions", least=1)


@options
class RaIsfMaking:
    """Options of making files from the replies."""

    labels: Literal["words", "code"] = option(
        "words",
        "proposed",
        "targets: what the method's prompts ask for, yes, no and a numbered list; or those of the paper's code, know, unknow, relevance, "
        'irrelevance and {"query": [...]}, which the method reads as well, but not with verdicts by choice or probability',
    )
    prompt_shots: int = option(0, "proposed", "demonstrations in the prompts that are trained on: the method's switch 'shots' later")
    max_sub_questions: int = option(5, "proposed", "sub-questions of a question, the first of the list, as the method reads them", least=1)


def _method_options(asking: RaIsfAsking) -> RaIsfOptions:
    return RaIsfOptions(k=asking.k, max_query_tokens=asking.max_query_tokens, remove_question=asking.remove_question, shots=asking.shots)


def collect(question: str, asking: RaIsfAsking) -> Run[Answer]:
    """Ask the models to answer, judge and decompose one question, all three concurrently."""
    wanted: list[Run[dict[str, Any]]] = []
    if asking.know == "answers":
        wanted.append(named("know", _own_answer(question, asking)))
    elif asking.know == "asked":
        wanted.append(named("know", _asked_whether_known(question, asking)))
    if asking.relevance:
        wanted.append(named("relevance", _judged(question, asking)))
    if asking.decompose:
        wanted.append(named("decompose", _broken_down(question, asking)))
    found = yield from together(wanted)
    detail = {name: value for part in found for name, value in part.items()}
    passages: tuple[Passage, ...] = detail.pop("passages", ())
    return Answer(detail.get("own_answer", ""), passages, detail)


def _own_answer(question: str, asking: RaIsfAsking) -> Run[dict[str, Any]]:
    (form,) = template("ra_isf", f"form_{asking.answer_form}")()
    prompt = template("ra_isf", "closed_book")(question=question, form=form.content, shots=asking.shots)
    answer = yield from generate(prompt, Decoding(max_tokens=asking.max_tokens))
    return {"own_answer": answer.text.strip()}


def _asked_whether_known(question: str, asking: RaIsfAsking) -> Run[dict[str, Any]]:
    node = yield from self_knowledge(Node(question=question), _method_options(asking))
    return {"known": node.known if node.parse_ok else None}


def _judged(question: str, asking: RaIsfAsking) -> Run[dict[str, Any]]:
    node = yield from passage_relevance(Node(question=question), _method_options(asking))
    return {"passages": node.found, "verdicts": [one.yes if one.found else None for one in node.verdicts]}


def _broken_down(question: str, asking: RaIsfAsking) -> Run[dict[str, Any]]:
    prompt = _decompose_prompt(question, asking.shots, refer_back=asking.refer_back)
    reply = yield from generate(prompt, Decoding(max_tokens=asking.max_tokens), role="decompose")
    return {"sub_questions": [one.text for one in sub_questions(reply.text, is_cut=reply.finish == "length")]}


def _know_prompt(question: str, shots: int) -> Chat:
    return template("ra_isf", "know")(question=question, shots=shots)


def _relevance_prompt(question: str, passage: Passage, shots: int) -> Chat:
    return template("ra_isf", "relevance")(question=question, passage=unnumbered(passage), shots=shots)


def _decompose_prompt(question: str, shots: int, *, refer_back: bool) -> Chat:
    return template("ra_isf", "decompose_in_order" if refer_back else "decompose")(question=question, shots=shots)


def make(collected: Sequence[Collected], asking: RaIsfAsking, making: RaIsfMaking, seed: int, citations: RowMetric | None) -> Made:
    """Make the files of the sub-models selected by the options of asking. A text in place of an example is the reason for its absence."""
    wanted: dict[str, tuple[bool, Callable[[Collected, RaIsfAsking, RaIsfMaking], Iterator[Example | str]]]] = {
        "know": (asking.know != "off", _know_examples),
        "relevance": (asking.relevance, _relevance_examples),
        "decompose": (asking.decompose, _decompose_examples),
    }
    files: dict[str, list[Example]] = {}
    tallies: dict[str, Tally] = {}
    for name, (is_wanted, examples_of) in wanted.items():
        if not is_wanted:
            continue
        found = [example for one in collected for example in examples_of(one, asking, making)]
        files[name] = [one for one in found if isinstance(one, Example)]
        dropped = Counter(one for one in found if isinstance(one, str))
        tallies[name] = Tally(Counter(map(_kind, files[name])), dropped)
    return Made(files, tallies)


def _kind(example: Example) -> str:
    label = example.provenance.get("label")
    return f"{example.provenance['sub_questions']} sub-questions" if label is None else "yes" if label else "no"


def _know_examples(one: Collected, asking: RaIsfAsking, making: RaIsfMaking) -> Iterator[Example | str]:
    if "own_answer" in one.detail:
        score = squad.exact_match(one.detail["own_answer"], one.question.golden_answers)
        if score is None:
            yield "no gold answer"
            return
        is_known, labelled_by = score == 1, "the model's own answer, by squad_em"
    elif one.detail["known"] is None:
        yield "unreadable verdict"
        return
    else:
        is_known, labelled_by = one.detail["known"], "asked whether it knows"
    prompt = _know_prompt(one.question.text, making.prompt_shots)
    yield _labelled(one, "know", prompt, is_yes=is_known, labelled_by=labelled_by, making=making)


def _relevance_examples(one: Collected, asking: RaIsfAsking, making: RaIsfMaking) -> Iterator[Example | str]:
    for passage, verdict in zip(one.passages, one.detail["verdicts"], strict=True):
        if verdict is None:
            yield "unreadable verdict"
            continue
        prompt = _relevance_prompt(one.question.text, passage, making.prompt_shots)
        example = _labelled(one, "relevance", prompt, is_yes=verdict, labelled_by="the model's verdict", making=making)
        yield example._replace(id=f"{example.id}/{passage.id}", provenance={**example.provenance, "passage": passage.id})


def _labelled(one: Collected, kind: str, prompt: Chat, *, is_yes: bool, labelled_by: str, making: RaIsfMaking) -> Example:
    yes, no = _LABELS["words" if making.labels == "words" else kind]
    provenance = {**_provenance(one), "label": is_yes, "labelled_by": labelled_by}
    return Example(f"{one.id}/{kind}", (*prompt, Message("assistant", yes if is_yes else no)), provenance)


def _decompose_examples(one: Collected, asking: RaIsfAsking, making: RaIsfMaking) -> Iterator[Example | str]:
    asked = one.detail["sub_questions"][: making.max_sub_questions]
    if not asked:
        yield "no sub-questions"
        return
    if making.labels == "words":
        target = "\n".join(f"{number}. {' '.join(text.split())}" for number, text in enumerate(asked, 1))
    else:
        target = json.dumps({"query": asked}, ensure_ascii=False)
    prompt = _decompose_prompt(one.question.text, making.prompt_shots, refer_back=asking.refer_back)
    provenance = {**_provenance(one), "sub_questions": len(asked)}
    yield Example(f"{one.id}/decompose", (*prompt, Message("assistant", target)), provenance)


def _provenance(one: Collected) -> dict[str, str | bool | int]:
    return {"set": one.set, "question_id": one.question.id, "question": one.question.text}


def draw(sets: Sequence[QuestionSet], asking: RaIsfAsking, seed: int) -> list[QuestionSet]:
    """Draw the same number of questions from each set."""
    return [drawn(one, asking.per_set, seed) for one in sets]


def check(sets: Sequence[QuestionSet], asking: RaIsfAsking, making: RaIsfMaking) -> None:
    """Check that no file would be without examples.

    Raises:
        InputError: there are no golden answers to compare with, or fewer demonstrations than requested.
    """
    if asking.know != "off":
        _know_prompt("", making.prompt_shots)
    if asking.relevance:
        _relevance_prompt("", Passage("", "", ""), making.prompt_shots)
    if asking.decompose:
        _decompose_prompt("", making.prompt_shots, refer_back=asking.refer_back)
    if asking.know == "answers" and not any(question.golden_answers for one in sets for question in one.questions):
        raise InputError("no question has gold answers to compare the model's own with: add them, or --set know=asked or know=off")


def method_of(one: QuestionSet, seed: int) -> Method:
    """Return the method that asks; it uses no randomness, and is the same for all sets."""
    return replace(
        RA_ISF, summary="answers, judges and breaks down each question for the sub-models' training sets", options=RaIsfAsking, run=collect
    )


BUILDER = Builder(
    name="ra_isf",
    summary="the sets of the three sub-models: what is known, what is relevant, how a question is broken down",
    source="RA-ISF, arXiv 2403.06840, section 3.2 and appendix A",
    asking=RaIsfAsking,
    making=RaIsfMaking,
    draw=draw,
    method=method_of,
    make=make,
    about=_ABOUT,
    check=check,
    citations=lambda sets, asking, making, device: None,
)
