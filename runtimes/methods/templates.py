"""Prompts from text files.

``prompts/<method>/<name>.txt`` is a conversation: a line ``[system]``, ``[user]`` or ``[assistant]`` begins a turn, ``{field}`` is a
placeholder. Other braces are literal, so JSON needs no escapes. ``<name>.shots.jsonl`` holds demonstrations, shown as earlier turns; each
line has a value for every field of the user's turns, and the expected answer under ``output``.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.resources
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from typing import Literal, NamedTuple, cast

from wikidx.corpora.errors import InputError
from wikidx.corpora.passage import Passage
from wikidx.runtimes.llms.base import Chat, Message, Span

Role = Literal["system", "user", "assistant"]

_TURN = re.compile(r"^\[(system|user|assistant)\][ \t]*\n", re.MULTILINE)
_FIELD = re.compile(r"\{([a-z_]+)\}")
_BETWEEN = "\n\n"


class Blocks(NamedTuple):
    """A value of several texts, separated by blank lines, which may be cut from the end of the last text to fit the context."""

    texts: tuple[str, ...]


def format_passages(passages: Sequence[Passage]) -> Blocks:
    """Format passages as ``[1] title``, a line break, the text, and so on; "(none)" if there are none."""
    texts = tuple(f"[{number}] {passage.title}\n{passage.text}" for number, passage in enumerate(passages, 1))
    return Blocks(texts or ("(none)",))


def format_passage(passage: Passage) -> Blocks:
    """Format one passage: its title, a line break, the text."""
    return Blocks((f"{passage.title}\n{passage.text}",))


@dataclass(frozen=True, slots=True)
class Template:
    """A prompt with placeholders.

    Attributes:
        name: "method/name", for messages.
        turns: the conversation.
        shots: demonstrations, each with the values of the user's turns, and ``output``.
    """

    name: str
    turns: tuple[tuple[Role, str], ...]
    shots: tuple[dict[str, str], ...] = ()

    def __call__(self, *, shots: int = 0, **values: str | Blocks) -> Chat:
        """Return the prompt with the values filled in, after the requested number of demonstrations.

        Raises:
            ValueError: a field has no value, or a value has no field.
            InputError: there are too few demonstrations.
        """
        if shots > len(self.shots):
            raise InputError(f"the prompt '{self.name}' has {len(self.shots)} demonstrations, not {shots}: ask for fewer")
        self._check(values)
        system_turns = [turn for turn in self.turns if turn[0] == "system"]
        other_turns = [turn for turn in self.turns if turn[0] != "system"]
        messages = [_fill(role, text, values) for role, text in system_turns]
        for shot in self.shots[:shots]:
            messages += [_fill(role, text, shot) for role, text in other_turns if role == "user"]
            messages.append(Message("assistant", shot["output"]))
        return (*messages, *(_fill(role, text, values) for role, text in other_turns))

    def _check(self, values: Iterable[str]) -> None:
        fields = {field for _, text in self.turns for field in _FIELD.findall(text)}
        if fields != set(values):
            raise ValueError(f"the prompt '{self.name}' has the fields {sorted(fields)}, the values are {sorted(values)}")


def _fill(role: Role, text: str, values: dict[str, str] | dict[str, str | Blocks]) -> Message:
    parts: list[str] = []
    spans: list[Span] = []
    length = end = 0
    for match in _FIELD.finditer(text):
        parts.append(text[end : match.start()])
        length += len(parts[-1])
        end = match.end()
        value = values[match[1]]
        for number, block in enumerate([value] if isinstance(value, str) else value.texts):
            parts.append(block if number == 0 else _BETWEEN + block)
            if not isinstance(value, str):
                spans.append((length, length + len(parts[-1])))
            length += len(parts[-1])
    parts.append(text[end:])
    return Message(role, "".join(parts), tuple(spans))


def _folder(method: str) -> Traversable:
    return importlib.resources.files(__package__) / "prompts" / method


@functools.cache
def load_template(method: str, name: str) -> Template:
    """Return the prompt ``name`` of a method.

    Raises:
        ValueError: the file does not begin with a turn.
    """
    text = (_folder(method) / f"{name}.txt").read_text(encoding="utf-8")
    shots = _folder(method) / f"{name}.shots.jsonl"
    lines = shots.read_text(encoding="utf-8").splitlines() if shots.is_file() else []
    return Template(f"{method}/{name}", parse(text), tuple(json.loads(line) for line in lines if line.strip()))


def parse(text: str) -> tuple[tuple[Role, str], ...]:
    """Return the turns of a prompt file, each without surrounding blank lines.

    Raises:
        ValueError: the text does not begin with a turn.
    """
    before, *turns = _TURN.split(text)
    if before.strip() or not turns:
        raise ValueError(f"a prompt begins with [system], [user] or [assistant], not with {before[:40]!r}")
    return tuple((cast("Role", role), content.strip()) for role, content in zip(turns[::2], turns[1::2], strict=True))


def prompt_hashes(methods: Sequence[str]) -> dict[str, str]:
    """Return the SHA-256 of every prompt file of the methods, keyed by "method/file", for the record of a run."""
    files = [(method, file) for method in methods for file in _folder(method).iterdir() if file.is_file()]
    return {f"{method}/{file.name}": hashlib.sha256(file.read_bytes()).hexdigest() for method, file in sorted(files, key=str)}
