"""A second request for the answer that a JSON reply lacks, for whatever reason: no schema, the token limit, a loop, no text at all."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from wikidx.runtimes.llms.base import Gen
from wikidx.runtimes.llms.prompts import Chat, Decoding, Message

from .model_output import find_object, first_line, parse_labels, to_text
from .requests import generate
from .templates import load_template

_END_OF_FIELD = '"}'


class Field(NamedTuple):
    """A field of a reply.

    Attributes:
        name: the field's name.
        text: its text, empty if the reply has none.
        is_cut: whether the token limit cut the text.
    """

    name: str
    text: str
    is_cut: bool

    @property
    def is_whole(self) -> bool:
        """True if the reply has all of the field."""
        return bool(self.text) and not self.is_cut


def read_field(output: Gen, name: str, text: str) -> Field:
    """Return the field with a text that was found in an output."""
    return Field(name, text, output.finish == "length" and output.text.rstrip().endswith(text))


async def request_again(method: str, prompt: Chat, output: Gen, field: Field, question: str, decoding: Decoding) -> Field:
    """Return a field of ``output``, requested once more by the method's prompt ``again`` unless it is whole.

    The output, which may be cut to fit the context, is part of the request. What it has of the field stays if the second reply has no more.
    """
    if field.is_whole:
        return field
    written = (Message("assistant", output.text, ((0, len(output.text)),)),) if output.text.strip() else ()
    request = load_template(method, "again")(field=field.name, question=question)
    beginning = f'{{"{field.name}": "'
    again = (*prompt, *written, *request, Message("assistant", beginning))
    reply = await generate(again, replace(decoding, stop=(_END_OF_FIELD,)))
    text = _parse_field(reply.text, field.name)
    if not text and not reply.text.lstrip().startswith("{"):  # the beginning is continued
        text = _parse_field(beginning + reply.text, field.name)
    second = read_field(reply, field.name, first_line(text) if field.name == "answer" else text)
    return second if second.is_whole or not field.text else field


def _parse_field(output: str, field: str) -> str:
    fields = find_object(output, (field,)).value or dict(parse_labels(output, (field,)))
    return to_text(fields.get(field))
