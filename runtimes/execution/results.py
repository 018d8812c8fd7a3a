"""Outcome of a question (answer, steps, cost and time), and its JSON for a line of ``predictions.jsonl``."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from wikidx.corpora.passage import Passage
from wikidx.runtimes.llms.base import AskYesNo, Call, Gen, Generate, MeanNll, Mix, Nll, Score, Scores, YesNo
from wikidx.runtimes.llms.prompts import Prompt, TokenIds
from wikidx.runtimes.methods.requests import IMMEDIATE, Compare, LookUpTitle, Note, Request, Result, Retrieve, Truncate

_SHOWN_OTHERS = 8  # texts that a text is compared with; of more the number is recorded


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of a request.

    Attributes:
        result: the result; None for a note or after an error.
        error: class and message of the error; None: no error.
        prompt_tokens, completion_tokens: the cost, also counted if the result of an equal request was reused.
        model: the model that answered, as its endpoint names it; empty: unknown.
        seconds: time from sending the request to its result; of a request served in a batch, its share of the batch's time.
        is_reused: whether the result is that of an equal request.
    """

    result: Result = None
    error: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    model: str = ""
    seconds: float = field(default=0.0, compare=False)
    is_reused: bool = field(default=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class Step(Outcome):
    """A request and its outcome.

    Attributes:
        depth: number of requests of the question that had to be served one after another before this one.
        request: the request; ``request.path`` holds its labels in the method's trace.
    """

    depth: int
    request: Request


class Cost(NamedTuple):
    """Cost of a question, or of several. Requests shared with other questions count in full.

    Attributes:
        calls: number of calls of language models.
        prompt_tokens, completion_tokens: numbers of tokens read and generated.
        searches, queries: numbers of groups of queries, and of queries in all groups.
    """

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    searches: int = 0
    queries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The outcome of a question.

    Attributes:
        id, question: id and text of the question.
        answer: the answer; empty after an error.
        passages: the evidence of the answer.
        detail: further results of the method, as JSON values.
        steps: all requests with their results, in order.
        error: class and message of the error; None: there is an answer.
        seconds: time from the first request to the answer, with all waiting for other questions.
    """

    id: str
    question: str
    answer: str = ""
    passages: tuple[Passage, ...] = ()
    detail: Mapping[str, Any] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    error: str | None = None
    seconds: float = field(default=0.0, compare=False)

    @property
    def cost(self) -> Cost:
        """The cost, which does not depend on other questions of the run."""
        searches = [step.request for step in self.steps if isinstance(step.request, Retrieve)]
        return Cost(
            calls=sum(isinstance(step.request, Call) for step in self.steps),
            prompt_tokens=sum(step.prompt_tokens for step in self.steps),
            completion_tokens=sum(step.completion_tokens for step in self.steps),
            searches=len(searches),
            queries=sum(len(search.queries) for search in searches),
        )

    @property
    def depth(self) -> int:
        """Number of requests in the longest chain of those that had to be served one after another."""
        return max((step.depth + 1 for step in self.steps if not isinstance(step.request, IMMEDIATE)), default=0)

    @property
    def degraded(self) -> list[str]:
        """Fallbacks used for capabilities that a model lacks, each once."""
        return list(dict.fromkeys(fallback for result in self.results for fallback in getattr(result, "degraded", ())))

    @property
    def models(self) -> list[str]:
        """The models that answered, as their endpoints name them."""
        return sorted({step.model for step in self.steps if step.model})

    @property
    def yes_no_masses(self) -> list[float]:
        """Total probabilities of the two answers, for each yes/no question to a model."""
        return [result.mass for result in self.results if isinstance(result, YesNo)]

    @property
    def results(self) -> list[Result | Gen | Passage | float]:
        """Results of all steps, with those of several texts or passages one by one."""
        return [item for step in self.steps for item in (step.result if isinstance(step.result, tuple) else (step.result,))]


def count_kinds(texts: Iterable[str]) -> list[tuple[int, str]]:
    """Return (count, first text) for each kind of error or fallback, the most frequent kind first.

    Texts are of one kind if they are equal up to the first quotation mark, apart from numbers.
    """
    by_kind: dict[str, list[str]] = {}
    for text in texts:
        by_kind.setdefault(re.sub(r"\d+", "#", re.split("[\"']", text, maxsplit=1)[0]), []).append(text)
    return sorted(((len(examples), examples[0]) for examples in by_kind.values()), key=lambda kind: -kind[0])


def prediction_to_json(prediction: Prediction, *, with_steps: bool = True) -> dict[str, Any]:
    """Return a prediction as JSON values, optionally with the steps; passages in results of steps have no text."""
    record: dict[str, Any] = {
        "id": prediction.id,
        "question": prediction.question,
        "answer": prediction.answer,
        "error": prediction.error,
        "passages": [passage._asdict() for passage in prediction.passages],
        "detail": dict(prediction.detail),
        "degraded": prediction.degraded,
        "cost": {**prediction.cost._asdict(), "depth": prediction.depth},
        "timing": {
            "seconds": prediction.seconds,
            "service": sum(step.seconds for step in prediction.steps if not step.is_reused),
            "reused": sum(step.is_reused for step in prediction.steps),
        },
    }
    if masses := prediction.yes_no_masses:
        record["yes_no"] = {"asked": len(masses), "mass": math.fsum(masses) / len(masses)}
    if texts := [result for result in prediction.results if isinstance(result, Gen)]:
        cut, empty = sum(gen.finish == "length" for gen in texts), sum(not gen.text.strip() for gen in texts)
        record["replies"] = {"texts": len(texts), "cut": cut, "empty": empty}
    if prediction.models:
        record["models"] = prediction.models
    if with_steps:
        record["steps"] = [step_to_json(step) for step in prediction.steps]
    return record


def step_to_json(step: Step) -> dict[str, Any]:
    """Return a step as JSON values."""
    record: dict[str, Any] = {"depth": step.depth, "path": list(step.request.path), **_request(step.request)}
    if not isinstance(step.request, IMMEDIATE):
        record |= {"seconds": round(step.seconds, 6), **({"reused": True} if step.is_reused else {})}
    if step.error is not None:
        return {**record, "error": step.error}
    if not isinstance(step.request, Note):
        record["result"] = _result(step.result)
    if isinstance(step.request, Call):
        record["tokens"] = [step.prompt_tokens, step.completion_tokens]
    return record


def _request(request: Request) -> dict[str, Any]:
    match request:
        case Generate():
            decoding = {name: value for name, value in asdict(request.decoding).items() if value not in (None, ())}
            schema = None if request.schema is None else {type(request.schema).__name__: request.schema[0]}
            parameters = {"decoding": decoding, "n": request.n, "schema": schema, "logprobs": request.logprobs}
            control = {"control": list(request.control)} if request.control else {}
            return {"request": "generate", "role": request.role, "prompt": _prompt(request.prompt), **parameters, **control}
        case AskYesNo():
            words = [list(request.positive), list(request.negative)]
            return {"request": "yes_no", "role": request.role, "prompt": _prompt(request.prompt), "words": words}
        case MeanNll():
            return {"request": "nll", "role": request.role, "prompt": _prompt(request.prompt), "continuation": request.continuation}
        case Mix():
            mixed = {"prompts": list(map(_prompt, request.prompts)), "weights": list(request.weights)}
            return {"request": "mix", "role": request.role, **mixed, "max_tokens": request.decoding.max_tokens}
        case Score():
            return {"request": "score", "role": request.role, "query": request.prompt, "texts": list(request.texts)}
        case Retrieve() | LookUpTitle() | Compare():
            return _search_request(request)
        case Truncate():
            limits = {"max_tokens": request.max_tokens, "keep": request.keep}
            return {"request": "truncate", "role": request.role, "text": request.text, **limits}
        case Note():
            return {"note": request.text, "data": dict(request.data)}


def _search_request(request: Retrieve | LookUpTitle | Compare) -> dict[str, Any]:
    match request:
        case Retrieve():
            return {"request": "retrieve", "queries": list(request.queries), "k": request.k, "merge": request.merge, "dedup": request.dedup}
        case LookUpTitle():
            return {"request": "look_up", "title": request.title}
        case Compare():
            others = list(request.others) if len(request.others) <= _SHOWN_OTHERS else len(request.others)
            return {"request": "compare", "text": request.text, "others": others, "encoder": request.encoder}


def _prompt(prompt: Prompt) -> str | list[int] | list[dict[str, str]]:
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, TokenIds):
        return list(prompt.ids)
    return [message.to_json() for message in prompt]


def _result(result: Result) -> Any:  # noqa: ANN401 - JSON
    match result:
        case YesNo():
            return {**asdict(result), "score": result.score}
        case Scores():
            return list(result.values)
        case Nll():
            return {**asdict(result), "mean": result.mean}
        case tuple():
            return [_item(item) for item in result]
        case list():
            scores = [hit.score if math.isfinite(hit.score) else None for hit in result]
            return [{"id": hit.id, "title": hit.title, "score": score} for hit, score in zip(result, scores, strict=True)]
        case _:
            return result


def _item(item: Gen | Passage | float) -> Any:  # noqa: ANN401 - JSON
    if isinstance(item, float):
        return item
    return _gen(item) if isinstance(item, Gen) else {"id": item.id, "title": item.title}


def _gen(gen: Gen) -> dict[str, Any]:
    record = {"text": gen.text, "finish": gen.finish, "mean_nll": gen.mean_nll, "degraded": list(gen.degraded)}
    control = {"control": [place._asdict() for place in gen.control]} if gen.control else {}
    return {**record, **control, **({"reasoning": gen.reasoning} if gen.reasoning else {})}
