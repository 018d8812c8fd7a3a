"""Forms of answers: one table for all methods, and the form that a set of questions takes.

``prompts/forms/forms.json`` holds the wording of each form, for places of prompts such as ``{form.reply}``. The demonstrations of a form,
``prompts/forms/<form>.shots.jsonl``, are shown by every prompt that has none of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple, get_args

from wikidx.runtimes.questions.base import FEVER_LABELS, Question

FormName = Literal["short", "sentence", "yes_no", "fever", "long", "dialogue"]
LineFormName = Literal["short", "yes_no", "fever"]
"""Forms in which a chain of thought or of actions can conclude."""
SHORT: FormName = "short"

_SUPPORTS, _REFUTES, _UNDECIDED = FEVER_LABELS
_LABEL_OF_WORD = {
    **dict.fromkeys(("supports", "supported", "support", "true", "yes"), _SUPPORTS),
    **dict.fromkeys(("refutes", "refuted", "refute", "false", "no"), _REFUTES),
    **dict.fromkeys(("notenoughinfo", "notenoughinformation", "nei", "unverifiable", "unknown"), _UNDECIDED),
}
_YES_NO = {"yes": "yes", "true": "yes", "no": "no", "false": "no"}
_NUMBER = re.compile(r"(?<!\d)\d{1,4}(?!\d)", re.ASCII)
_MARK = re.compile(r"(\s*)\[\s*(\d{1,4}(?:\s*[,;]\s*\d{1,4})*)\s*\]", re.ASCII)


class ReadAnswer(NamedTuple):
    """An answer in a form.

    Attributes:
        text: the answer.
        is_read: whether the model's answer was recognised.
        record: further fields of the answer's ``detail``.
    """

    text: str
    is_read: bool = True
    record: dict[str, Any] = {}


class Form(NamedTuple):
    """A form of answers.

    Attributes:
        description: one line of help.
        read: (a model's answer, number of passages that it may cite) -> the answer in this form.
        max_tokens: default limit of an answer.
        metrics: metrics for such answers.
        choices: the only possible answers; empty: any text.
        undecided: the answer if no passage is relevant; None: what the model knows.
    """

    description: str
    read: Callable[[str, int], ReadAnswer]
    max_tokens: int
    metrics: tuple[str, ...]
    choices: tuple[str, ...] = ()
    undecided: str | None = None


class CitedText(NamedTuple):
    """A long answer in the input form of ALCE's evaluation.

    Attributes:
        text: the answer on one line, with citations as ``[n]``.
        cited: distinct citation numbers that belong to a passage.
        missing: distinct citation numbers that belong to no passage.
    """

    text: str
    cited: list[int]
    missing: list[int]


def parse_label(text: str) -> tuple[str, bool]:
    """Return the FEVER label that a text states, and whether a label was recognised; an unrecognised label becomes NOT ENOUGH INFO."""
    label = _LABEL_OF_WORD.get(re.sub(r"[\W_]+", "", text.casefold()))
    if label:
        return label, True
    words = re.findall(r"\w+", text.casefold())
    if "not enough" in " ".join(words):
        return _UNDECIDED, True
    if "not" in words:  # "not supported" may mean REFUTES or NOT ENOUGH INFO
        return _UNDECIDED, False
    labels = {_LABEL_OF_WORD[word] for word in words if word.startswith(("support", "refute")) and word in _LABEL_OF_WORD}
    return (labels.pop(), True) if len(labels) == 1 else (_UNDECIDED, False)


def parse_yes_no(text: str) -> tuple[str, bool]:
    """Return "yes" or "no" if a text begins with it (or with true, false), or has one of the two only; otherwise the text and False."""
    words = re.findall(r"\w+", text.casefold())
    if words and words[0] in _YES_NO:
        return _YES_NO[words[0]], True
    stated = {"yes", "no"} & {*words}
    return (stated.pop(), True) if len(stated) == 1 else (text.strip(), False)


def normalize_citations(text: str, n_passages: int) -> CitedText:
    """Convert a long answer to the input form of ALCE's evaluation: ``[1, 2]`` becomes ``[1][2]``, and lines are joined."""
    numbers = [int(number) for mark in _MARK.finditer(text) for number in _NUMBER.findall(mark[2])]
    missing = [number for number in dict.fromkeys(numbers) if not 1 <= number <= n_passages]
    rewritten = _MARK.sub(lambda mark: mark[1] + "".join(f"[{int(number)}]" for number in _NUMBER.findall(mark[2])), text)
    return CitedText(" ".join(rewritten.split()), [number for number in dict.fromkeys(numbers) if number not in missing], missing)


def strip_citations(text: str) -> str:
    """Return a long answer without its citations."""
    return _MARK.sub("", text)


def _read_long(text: str, n_passages: int) -> ReadAnswer:
    cited = normalize_citations(text, n_passages)
    return ReadAnswer(cited.text, record={"citations": {"cited": cited.cited, "missing": cited.missing}})


def _read_text(text: str, _: int) -> ReadAnswer:
    return ReadAnswer(text.strip())


_SHORT_METRICS = ("squad_em", "squad_f1", "flashrag_acc")
_FEVER_METRICS = ("fever_label_accuracy", "react_fever_em")
FORMS: dict[FormName, Form] = {
    "short": Form("a name, a date or the like", _read_text, 256, _SHORT_METRICS),
    "sentence": Form("a full sentence", _read_text, 256, ("flashrag_acc",)),
    "yes_no": Form("yes or no (StrategyQA)", lambda text, _: ReadAnswer(*parse_yes_no(text)), 256, ("strategyqa_accuracy",), ("yes", "no")),
    "fever": Form(
        "a verdict on a claim (FEVER)",
        lambda text, _: ReadAnswer(*parse_label(text)),
        256,
        _FEVER_METRICS,
        FEVER_LABELS,
        _UNDECIDED,
    ),
    "long": Form("several sentences, with citations of the passages (ASQA)", _read_long, 300, ("alce_str_em", "alce_str_hit")),
    "dialogue": Form("the next turn of a conversation (Wizard of Wikipedia)", _read_text, 50, ("kilt_f1", "kilt_rouge_l")),
}
"""Form -> its rules. The limits of long answers and dialogue turns are those of the code of ALCE and of GenRead."""


def describe_forms(names: Any) -> str:  # noqa: ANN401 - a Literal of names
    """Return the help of an option ``form`` with these names."""
    return "form of the answer; " + "; ".join(f"{name}: {FORMS[name].description}" for name in get_args(names))


def form_of(questions: Iterable[Question]) -> FormName:
    """Return the form of the answers to a set of questions, from their gold data; "short" if these imply none or several."""
    forms = {_form_of_one(question) for question in questions if question.golden_answers or question.gold}
    if "dialogue" in forms:  # KILT's conversations may have a single turn so far
        return "dialogue"
    return forms.pop() if len(forms) == 1 else SHORT


def _form_of_one(question: Question) -> FormName:
    if "answer_groups" in question.gold:
        return "long"
    if question.gold.get("label") in FEVER_LABELS:
        return "fever"
    if "turns" in question.gold:
        return "dialogue"
    is_yes_no = len(question.golden_answers) == 1 and question.golden_answers[0].strip(" .").casefold() in _YES_NO
    return "yes_no" if is_yes_no else SHORT


def gold_answer(question: Question, form: str) -> str:
    """Return a gold answer in a form, for demonstrations."""
    long_answers = question.gold.get("long_answers", ()) if form == "long" else ()
    return str(next(iter((*long_answers, *question.golden_answers))))
