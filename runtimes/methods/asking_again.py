"""A second request for a field that a JSON reply lacks, where no schema is enforced."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from wikidx.runtimes.llms.base import Chat, Decoding, Gen, Message
from wikidx.runtimes.llms.text import FREE_TEXT

from .model_output import find_object, parse_labels, to_text
from .requests import Run, generate
from .templates import load_template

_END_OF_FIELD = '"}'


class FieldText(NamedTuple):
    """The text of a requested field, empty if the reply has none, and whether the token limit cut it."""

    text: str
    is_cut: bool


def is_free(output: Gen) -> bool:
    """Return whether an output has text that no schema constrained."""
    return FREE_TEXT in output.degraded and bool(output.text.strip())


def is_cut_within(output: Gen, value: str) -> bool:
    """Return whether the token limit cut an output within a value."""
    return output.finish == "length" and output.text.rstrip().endswith(value)


def request_field(method: str, prompt: Chat, output: Gen, field: str, question: str, decoding: Decoding) -> Run[FieldText]:
    """Request a field that ``output`` lacks by the method's prompt ``again``. The output may be cut to fit the context."""
    written = Message("assistant", output.text, ((0, len(output.text)),))
    request = load_template(method, "again")(field=field, question=question)
    beginning = f'{{"{field}": "'
    again = (*prompt, written, *request, Message("assistant", beginning))
    reply = yield from generate(again, replace(decoding, stop=(_END_OF_FIELD,)))
    text = _parse_field(reply.text, field)
    if not text and not reply.text.lstrip().startswith("{"):  # the beginning is continued
        text = _parse_field(beginning + reply.text, field)
    return FieldText(text, is_cut_within(reply, text))


def _parse_field(output: str, field: str) -> str:
    fields = find_object(output, (field,)).value or dict(parse_labels(output, (field,)))
    return to_text(fields.get(field))
