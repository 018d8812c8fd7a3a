"""Transcripts of methods: question, options and scripted replies -> everything that is asked, in order, and the answer.

``transcripts/METHOD.json`` holds them by name. What a reply stands for depends on the request: a text, an object of ``Gen``'s fields or a
list of these for a generation; a probability of yes, or an object of ``YesNo``'s fields; a mean NLL, or an object of ``Nll``'s fields;
{"ID TITLE": TEXT} or, with a score or null for an unknown one, {"ID TITLE": [TEXT, SCORE]} for passages; a list of numbers for a comparison
or for scores. A text's "control" is a list of places, each with {TOKEN: PROBABILITY}. A line of "asked" begins with "+" where the request
was pending together with the one before; it shows the end of the prompt, and the checksum of the whole request.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

from tests.runtimes.methods.driving import Driven, drive, kind
from wikidx.corpora.passage import Passage
from wikidx.retrievers.base import ScoredPassage
from wikidx.runtimes.llms.base import AskYesNo, Control, Gen, Generate, MeanNll, Mix, Nll, Score, YesNo
from wikidx.runtimes.llms.prompts import prompt_text
from wikidx.runtimes.methods import find_method
from wikidx.runtimes.methods.requests import Compare, LookUpTitle, Request, Retrieve
from wikidx.runtimes.questions import Question
from wikidx.runtimes.training import ra_isf, self_reasoning
from wikidx.runtimes.training.sets import make_question_set

FOLDER = Path(__file__).with_name("transcripts")
_SHOWN = 80  # characters of a prompt

TRAINING = {"train_ra_isf": ra_isf.BUILDER, "train_self_reasoning": self_reasoning.BUILDER}
"""What asks the models for training data, as methods do."""
QUESTIONS = make_question_set("made", [Question(f"{number}", f"Question {number}?", ("x",)) for number in range(9)])

Transcript = dict[str, Any]


def read_transcripts(method: str) -> dict[str, Transcript]:
    """Return the transcripts of a method by their names."""
    found: dict[str, Transcript] = json.loads((FOLDER / f"{method}.json").read_text(encoding="utf-8"))
    return found


def replay(method: str, written: Transcript) -> Driven:
    """Run a method with the replies of a transcript."""
    chosen = TRAINING[method].method(QUESTIONS, 0) if method in TRAINING else find_method(method)
    replies = iter(written["replies"])
    options = {name: tuple(value) if isinstance(value, list) else value for name, value in written["options"].items()}
    return drive(chosen.run(written["question"], chosen.options(**options)), lambda request: _result(request, next(replies)))


def perform(method: str, written: Transcript) -> Transcript:
    """Return a transcript with what the method asks and answers now."""
    driven = replay(method, written)
    asked = [("+ " if place else "") + _line(request) for level in driven.levels for place, request in enumerate(level)]
    return {
        **{name: written[name] for name in ("question", "options", "replies")},
        "asked": asked,
        "notes": [f"{note.text}: {json.dumps(note.data, ensure_ascii=False)}" for note in driven.notes],
        "answer": driven.answer.text,
        "passages": [passage.id for passage in driven.answer.passages],
        "detail": driven.answer.detail,
    }


def _result(request: Request, written: Any) -> Any:  # noqa: ANN401 - JSON, and what ``drive`` takes
    match request:
        case Generate():
            return [_gen(text, request.control) for text in (written if isinstance(written, list) else [written])]
        case AskYesNo():
            return _of_fields(YesNo, written)
        case MeanNll():
            return _of_fields(Nll, written)
        case Mix() | Score():
            return written
        case Compare():
            return tuple(written)
    return [_found(id_, title, text) for key, text in written.items() for id_, _, title in [key.partition(" ")]]


def _found(id_: str, title: str, written: Any) -> Passage | ScoredPassage:  # noqa: ANN401
    if isinstance(written, str):
        return Passage(id_, title, written)
    text, score = written
    return ScoredPassage(Passage(id_, title, text), 0, math.nan if score is None else score, ())


def _gen(written: Any, tokens: tuple[str, ...]) -> Any:  # noqa: ANN401
    if not isinstance(written, dict) or "control" not in written:
        return _of_fields(Gen, written)
    control = [
        Control(place, tuple(math.log(ps[token]) if ps.get(token) else -1e4 for token in tokens)) for place, ps in written["control"]
    ]
    return _of_fields(Gen, {**written, "control": control})


def _of_fields(kind_: type[Any], written: Any) -> Any:  # noqa: ANN401
    if not isinstance(written, dict):
        return written
    return kind_(**{name: tuple(value) if isinstance(value, list) else value for name, value in written.items()})


def _line(request: Request) -> str:
    match request:
        case Retrieve():
            shown = f"{list(request.queries)}, k={request.k}"
        case LookUpTitle():
            shown = request.title
        case Mix():
            shown = f"{[round(weight, 3) for weight in request.weights]} …{prompt_text(request.prompt)[-_SHOWN:]}"
        case Score():
            shown = f"{request.prompt!r}, {list(request.texts)}"
        case Compare():
            shown = f"{request.text} | {' | '.join(request.others)} by {request.encoder}"
        case Generate() | AskYesNo() | MeanNll():
            shown = "…" + prompt_text(request.prompt)[-_SHOWN:]
        case _:
            raise AssertionError(f"{request} is not pending")
    digest = hashlib.sha256(repr(request).encode()).hexdigest()[:8]
    return f"{' > '.join((*request.path, kind(request)))}: {shown} #{digest}"


def write_transcripts(method: str, transcripts: dict[str, Transcript]) -> None:
    """Write the transcripts of a method, a line for each field, reply and request."""

    def text(value: object) -> str:
        return json.dumps(value, ensure_ascii=False)

    def lines(value: object) -> str:
        items = [f"\n   {text(item)}" for item in value] if isinstance(value, list) else []
        return f"[{','.join(items)}\n  ]" if len(items) > 1 else text(value)

    cases = [
        f" {text(name)}: {{\n" + ",\n".join(f"  {text(field)}: {lines(value)}" for field, value in transcript.items()) + "\n }"
        for name, transcript in transcripts.items()
    ]
    (FOLDER / f"{method}.json").write_text("{\n" + ",\n".join(cases) + "\n}\n", encoding="utf-8")


def main() -> None:
    """Write all transcripts anew, after a change that is meant; the difference shows which it concerns."""
    for file in sorted(FOLDER.glob("*.json")):
        write_transcripts(file.stem, {name: perform(file.stem, one) for name, one in read_transcripts(file.stem).items()})


if __name__ == "__main__":
    main()
