"""The training sets of RA-ISF's three sub-models (the paper's appendix A): self-knowledge, passage relevance, question decomposition.

The prompts are the prompts of the method ``ra_isf`` for the roles "know", "relevance" and "decompose". The targets have the form that this
method parses. A trained sub-model can therefore serve as the model of its role.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

from wikidx.base.errors import InputError
from wikidx.base.validation import options
from wikidx.corpora.passage import Passage
from wikidx.runtimes.evaluation.answers import squad
from wikidx.runtimes.evaluation.by_models.row_metrics import RowMetric
from wikidx.runtimes.llms.prompts import Chat, Decoding, Message
from wikidx.runtimes.methods.base import Answer, Method, option
from wikidx.runtimes.methods.ra_isf import METHOD as RA_ISF
from wikidx.runtimes.methods.ra_isf import RaIsfOptions
from wikidx.runtimes.methods.ra_isf.sub_models import passage_relevance, self_knowledge
from wikidx.runtimes.methods.ra_isf.tree import Node
from wikidx.runtimes.methods.requests import gather, generate, labelled
from wikidx.runtimes.methods.sub_questions import parse_sub_questions
from wikidx.runtimes.methods.templates import format_passage, load_template

from .base import Builder, Dataset, Example, Response, Tally
from .sets import QuestionSet, draw_questions

_LABELS = {"words": ("yes", "no"), "know": ("know", "unknow"), "relevance": ("relevance", "irrelevance")}
_DESCRIPTIONS = {
    "know": "M_know: question -> whether the model knows the answer",
    "relevance": "M_rel: question and passage -> whether the passage is relevant",
    "decompose": "M_decom: question -> sub-questions",
}


@options
class CollectOptions:
    """Options for collecting the models' replies."""

    per_set: int = option(1000, "paper", "maximum number of questions drawn from each set", minimum=1)
    know: Literal["answers", "asked", "off"] = option(
        "answers",
        "paper",
        "labels of self-knowledge; answers: compare the model's own answers with the gold answers (appendix A.1); asked: ask a model "
        "whether it knows the answer (section 4.5, with labels by GPT-4); off: no training set for this sub-model",
    )
    relevance: bool = option(True, "paper", "judge each retrieved passage (appendix A.2)")
    decompose: bool = option(True, "paper", "decompose each question (appendix A.3)")
    k: int = option(5, "paper", "number of passages judged for a question, as in appendix E", minimum=1)
    max_query_tokens: int = option(
        64, "paper", "maximum number of tokens of a search query; the last tokens of the question are kept; 0: no limit"
    )
    remove_question: bool = option(True, "paper", "leave out passages that contain the question (section 4.3)")
    shots: int = option(4, "ours", "number of demonstrations in each prompt; the paper says few-shot, but no number")
    form: Literal["short", "yes_no"] = option(
        "short",
        "ours",
        "form of the model's own answers; short: short answers; yes_no: yes or no, as in StrategyQA",
    )
    refer_back: bool = option(
        False, "ours", "sub-questions may refer to earlier answers as #1, #2; set the method's option of this name to the same value"
    )
    max_tokens: int = option(256, "ours", "maximum number of tokens of an answer, and of a list of sub-questions", minimum=1)


@options
class BuildOptions:
    """Options for building the files from the replies."""

    labels: Literal["words", "code"] = option(
        "words",
        "ours",
        "form of the targets; words: as the method's prompts request (yes, no, a numbered list); code: as in the authors' code (know, "
        'unknow, relevance, irrelevance, {"query": [...]}). The method parses both, but verdicts=choice and probability need words',
    )
    prompt_shots: int = option(
        0, "ours", "number of demonstrations in the training prompts; set the method's option 'shots' to the same value"
    )
    max_sub_questions: int = option(
        5, "ours", "maximum number of sub-questions per question; further ones are dropped, as by the method", minimum=1
    )


def _method_options(collect_options: CollectOptions) -> RaIsfOptions:
    return RaIsfOptions(
        k=collect_options.k,
        max_query_tokens=collect_options.max_query_tokens,
        remove_question=collect_options.remove_question,
        shots=collect_options.shots,
    )


async def collect(question: str, collect_options: CollectOptions) -> Answer:
    """Ask the models about one question.

    The options select among three concurrent requests: self-knowledge, passage relevance and question decomposition.
    """
    requests = list[Coroutine[Any, Any, dict[str, Any]]]()
    if collect_options.know == "answers":
        requests.append(labelled("know", _ask_answer(question, collect_options)))
    elif collect_options.know == "asked":
        requests.append(labelled("know", _ask_known(question, collect_options)))
    if collect_options.relevance:
        requests.append(labelled("relevance", _judge_passages(question, collect_options)))
    if collect_options.decompose:
        requests.append(labelled("decompose", _decompose(question, collect_options)))
    results = await gather(*requests)
    detail = {name: value for result in results for name, value in result.items()}
    passages: tuple[Passage, ...] = detail.pop("passages", ())
    return Answer(detail.get("own_answer", ""), passages, detail)


async def _ask_answer(question: str, collect_options: CollectOptions) -> dict[str, Any]:
    prompt = load_template("ra_isf", "closed_book", collect_options.form)(question=question, shots=collect_options.shots)
    answer = await generate(prompt, Decoding(max_tokens=collect_options.max_tokens))
    return {"own_answer": answer.text.strip()}


async def _ask_known(question: str, collect_options: CollectOptions) -> dict[str, Any]:
    node = await self_knowledge(Node(question=question), _method_options(collect_options))
    return {"known": node.known if node.parse_ok else None}


async def _judge_passages(question: str, collect_options: CollectOptions) -> dict[str, Any]:
    node = await passage_relevance(Node(question=question), _method_options(collect_options))
    return {"passages": node.retrieved, "verdicts": [verdict.is_yes if verdict.is_readable else None for verdict in node.verdicts]}


async def _decompose(question: str, collect_options: CollectOptions) -> dict[str, Any]:
    prompt = _decompose_prompt(question, collect_options.shots, refer_back=collect_options.refer_back)
    reply = await generate(prompt, Decoding(max_tokens=collect_options.max_tokens), role="decompose")
    return {"sub_questions": [item.text for item in parse_sub_questions(reply.text, is_cut=reply.finish == "length")]}


def _know_prompt(question: str, shots: int) -> Chat:
    return load_template("ra_isf", "know")(question=question, shots=shots)


def _relevance_prompt(question: str, passage: Passage, shots: int) -> Chat:
    return load_template("ra_isf", "relevance")(question=question, passage=format_passage(passage), shots=shots)


def _decompose_prompt(question: str, shots: int, *, refer_back: bool) -> Chat:
    return load_template("ra_isf", "decompose_in_order" if refer_back else "decompose")(question=question, shots=shots)


def build(
    responses: Sequence[Response],
    collect_options: CollectOptions,
    build_options: BuildOptions,
    seed: int,
    citation_scorer: RowMetric | None,
) -> Dataset:
    """Build the files of the sub-models that the collect options select, and count kept and dropped examples."""
    builders: dict[str, tuple[bool, Callable[[Response, CollectOptions, BuildOptions], Iterator[Example | str]]]] = {
        "know": (collect_options.know != "off", _know_examples),
        "relevance": (collect_options.relevance, _relevance_examples),
        "decompose": (collect_options.decompose, _decompose_examples),
    }
    files: dict[str, list[Example]] = {}
    tallies: dict[str, Tally] = {}
    for name, (is_enabled, make_examples) in builders.items():
        if not is_enabled:
            continue
        results = [example for response in responses for example in make_examples(response, collect_options, build_options)]
        files[name] = [response for response in results if isinstance(response, Example)]
        dropped = Counter(response for response in results if isinstance(response, str))
        tallies[name] = Tally(Counter(map(_kind, files[name])), dropped)
    return Dataset(files, tallies)


def _kind(example: Example) -> str:
    label = example.provenance.get("label")
    return f"{example.provenance['sub_questions']} sub-questions" if label is None else "yes" if label else "no"


def _know_examples(response: Response, collect_options: CollectOptions, build_options: BuildOptions) -> Iterator[Example | str]:
    if "own_answer" in response.detail:
        score = squad.exact_match(response.detail["own_answer"], response.question.golden_answers)
        if score is None:
            yield "no gold answer"
            return
        is_known, labelled_by = score == 1, "the model's own answer, by squad_em"
    elif response.detail["known"] is None:
        yield "unreadable verdict"
        return
    else:
        is_known, labelled_by = response.detail["known"], "asked whether it knows"
    prompt = _know_prompt(response.question.text, build_options.prompt_shots)
    yield _label(response, "know", prompt, is_yes=is_known, labelled_by=labelled_by, build_options=build_options)


def _relevance_examples(response: Response, collect_options: CollectOptions, build_options: BuildOptions) -> Iterator[Example | str]:
    for passage, verdict in zip(response.passages, response.detail["verdicts"], strict=True):
        if verdict is None:
            yield "unreadable verdict"
            continue
        prompt = _relevance_prompt(response.question.text, passage, build_options.prompt_shots)
        example = _label(response, "relevance", prompt, is_yes=verdict, labelled_by="the model's verdict", build_options=build_options)
        yield example._replace(id=f"{example.id}/{passage.id}", provenance={**example.provenance, "passage": passage.id})


def _label(
    response: Response,
    kind: str,
    prompt: Chat,
    *,
    is_yes: bool,
    labelled_by: str,
    build_options: BuildOptions,
) -> Example:
    yes, no = _LABELS["words" if build_options.labels == "words" else kind]
    provenance = {**_provenance(response), "label": is_yes, "labelled_by": labelled_by}
    return Example(f"{response.id}/{kind}", (*prompt, Message("assistant", yes if is_yes else no)), provenance)


def _decompose_examples(response: Response, collect_options: CollectOptions, build_options: BuildOptions) -> Iterator[Example | str]:
    listed = response.detail["sub_questions"][: build_options.max_sub_questions]
    if not listed:
        yield "no sub-questions"
        return
    if build_options.labels == "words":
        target = "\n".join(f"{number}. {' '.join(text.split())}" for number, text in enumerate(listed, 1))
    else:
        target = json.dumps({"query": listed}, ensure_ascii=False)
    prompt = _decompose_prompt(response.question.text, build_options.prompt_shots, refer_back=collect_options.refer_back)
    provenance = {**_provenance(response), "sub_questions": len(listed)}
    yield Example(f"{response.id}/decompose", (*prompt, Message("assistant", target)), provenance)


def _provenance(response: Response) -> dict[str, str | bool | int]:
    return {"set": response.set, "question_id": response.question.id, "question": response.question.text}


def draw(sets: Sequence[QuestionSet], collect_options: CollectOptions, seed: int) -> list[QuestionSet]:
    """Draw at most ``per_set`` questions from each set at random."""
    return [draw_questions(question_set, collect_options.per_set, seed) for question_set in sets]


def check(sets: Sequence[QuestionSet], collect_options: CollectOptions, build_options: BuildOptions) -> None:
    """Check that every file can have examples.

    Raises:
        InputError: golden answers are needed but no question has any, or there are fewer demonstrations than requested.
    """
    if collect_options.know != "off":
        _know_prompt("", build_options.prompt_shots)
    if collect_options.relevance:
        _relevance_prompt("", Passage("", "", ""), build_options.prompt_shots)
    if collect_options.decompose:
        _decompose_prompt("", build_options.prompt_shots, refer_back=collect_options.refer_back)
    if collect_options.know == "answers" and not any(question.golden_answers for item in sets for question in item.questions):
        raise InputError("no question has gold answers to compare the model's own with: add them, or --set know=asked or know=off")


def make_method(question_set: QuestionSet, seed: int) -> Method:
    """Return the method that collects the replies. Set and seed have no effect."""
    return replace(
        RA_ISF,
        summary="answer, judge and decompose each question for the sub-models' training sets",
        options=CollectOptions,
        run=collect,
    )


BUILDER = Builder(
    name="ra_isf",
    summary="training sets of the three sub-models: self-knowledge, passage relevance, question decomposition",
    source="RA-ISF, arXiv 2403.06840, section 3.2 and appendix A",
    collect_options=CollectOptions,
    build_options=BuildOptions,
    draw=draw,
    method=make_method,
    build=build,
    descriptions=_DESCRIPTIONS,
    check=check,
    citation_scorer=lambda sets, collect_options, build_options, device: None,
)
