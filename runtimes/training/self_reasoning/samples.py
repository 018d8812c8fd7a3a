"""Reading of the teacher's samples with the parser of the method ``self_reasoning``, and Algorithm 1 of the paper: data quality control.

Its input is a set of samples D_0 and a program P (``PROGRAM``) that decides whether an answer is correct. Correct short answers and claims
form D_s. Correct long answers form D_l if citation recall is at least delta_r and citation precision is at least delta_p. The result is the
union of D_s and D_l.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from wikidx.corpora.passage import Passage
from wikidx.runtimes.evaluation.by_models.citations import PRECISION, RECALL
from wikidx.runtimes.evaluation.by_models.row_metrics import RowMetric
from wikidx.runtimes.evaluation.predictions import PredictionRow
from wikidx.runtimes.methods.forms import normalize_citations, parse_label
from wikidx.runtimes.methods.self_reasoning import SelfReasoningOptions
from wikidx.runtimes.methods.self_reasoning.checks import find_cited
from wikidx.runtimes.methods.self_reasoning.fields import requested_fields
from wikidx.runtimes.methods.self_reasoning.trajectory import Trajectory, parse_trajectory
from wikidx.runtimes.training.base import Response

from .teacher import BuildOptions, CollectOptions, Task, method_options, score_of


class Sample(NamedTuple):
    """A question, its documents, and a complete trajectory.

    Attributes:
        response: the question and the replies.
        task: the question's task.
        documents: the documents shown to the teacher, in order.
        fields: the trajectory, name -> value, in output order.
    """

    response: Response
    task: Task
    documents: tuple[Passage, ...]
    fields: dict[str, Any]

    @property
    def is_negative(self) -> bool:
        """True if the documents were retrieved for another question."""
        return bool(self.response.detail["is_negative"])

    @property
    def graded_text(self) -> str:
        """The answer as the method returns it; a long answer is on one line, with citations as ``[n]``."""
        if self.task == "long":
            return normalize_citations(self.fields["analysis"], len(self.documents)).text
        return str(self.fields["answer"])


def read_sample(response: Response, collect_options: CollectOptions) -> Sample | str:
    """Return the sample in a response, or the reason why the response has none: "cut off", "unreadable" or "incomplete"."""
    task: Task = response.detail["task"]
    if response.detail["is_cut"]:
        return "cut off"
    options = method_options(collect_options, task, 0)
    names = requested_fields(options)
    trajectory = parse_trajectory(response.record["answer"], names)
    if trajectory.parse == "none":
        return "unreadable"
    documents = response.passages
    fields = _whole_fields(trajectory, documents, options)
    return "incomplete" if fields is None else Sample(response, task, documents, fields)


def _whole_fields(trajectory: Trajectory, documents: tuple[Passage, ...], options: SelfReasoningOptions) -> dict[str, Any] | None:
    """Return the fields that the prompt requests; None if a value is missing or unreadable. Only the list of citations may be empty."""
    values = trajectory._asdict()
    values["relevance"] = [{**item._asdict(), "document": _number(item.document, documents)} for item in trajectory.relevance]
    values["cite_list"] = [{**item._asdict(), "cite": _number(item.cite, documents)} for item in trajectory.cite_list]
    if options.form == "fever":
        label, is_read = parse_label(trajectory.answer)
        values["answer"] = label if is_read else ""
    fields = {name: values[name] for name in requested_fields(options)}
    items = [value for item in (*fields.get("relevance", ()), *fields["cite_list"]) for value in item.values()]
    texts = [value for name, value in fields.items() if name != "cite_list"]
    return None if any(value in (None, "", []) for value in (*items, *texts)) else fields


def _number(name: str, documents: tuple[Passage, ...]) -> int | None:
    """Return the number, from 1, of the document that a title or number names.

    A number that belongs to no document is returned unchanged. Any other name gives None.
    """
    position = find_cited(name, documents)
    if position is not None:
        return position + 1
    return int(name) if name.isdecimal() and name.isascii() and 0 < len(name) < 5 else None


def quality_control(samples: Sequence[Sample], citation_scorer: RowMetric | None, build_options: BuildOptions) -> list[str | None]:
    """Return, for each sample, the rule that drops the sample; None: the sample is kept.

    Args:
        samples: the samples, D_0.
        citation_scorer: the citation scorer T, called once with all correct long answers.
        build_options: the minimum STR-EM, citation recall and citation precision of a long answer.

    Raises:
        ValueError: a long answer is correct, but there is no citation scorer.
    """
    rules = [_rule_of_answer(sample, build_options.least_str_em) for sample in samples]
    long = [position for position, sample in enumerate(samples) if sample.task == "long" and rules[position] is None]
    if not long:
        return rules
    if citation_scorer is None:
        raise ValueError(f"{len(long)} long answers are correct, and nothing scores their citations")
    values = citation_scorer.measure(
        [row_of(samples[position]) for position in long], [samples[position].response.question for position in long]
    ).values
    for position, recall, precision in zip(long, values[RECALL], values[PRECISION], strict=True):
        if not recall >= build_options.citation_recall:  # negated so that NaN (an answer without sentences) is dropped
            rules[position] = "citation recall"
        elif not precision >= build_options.citation_precision:
            rules[position] = "citation precision"
    return rules


def _rule_of_answer(sample: Sample, least_str_em: float) -> str | None:
    score = score_of(sample.task, sample.graded_text, sample.response.question)
    if score is None:
        return "no gold answer"
    return None if score >= (least_str_em if sample.task == "long" else 1) else "wrong answer"


def row_of(sample: Sample) -> PredictionRow:
    """Return a long answer and its documents as a prediction."""
    return PredictionRow(sample.response.question.id, sample.graded_text, tuple(document._asdict() for document in sample.documents))
