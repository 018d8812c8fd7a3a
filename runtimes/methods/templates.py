"""Prompts from text files.

``prompts/<method>/<name>.txt`` is a conversation. A line ``[system]``, ``[user]`` or ``[assistant]`` begins a turn; ``{field}`` is a
placeholder. Other braces are literal, so JSON needs no escapes.

``prompts/<method>/<name>.shots.jsonl`` holds demonstrations, which become earlier turns. Each line has a value for every placeholder of the
user's turns, and the expected answer under ``output``.
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
    """Texts that fill one placeholder, separated by blank lines. The texts may be cut to fit the context, from the end of the last text."""

    texts: tuple[str, ...]


def format_passages(passages: Sequence[Passage]) -> Blocks:
    """Format each passage as ``[number] title``, line break and text, numbered from 1; "(none)" if there are no passages."""
    texts = tuple(f"[{number}] {passage.title}\n{passage.text}" for number, passage in enumerate(passages, 1))
    return Blocks(texts or ("(none)",))


def format_passage(passage: Passage) -> Blocks:
    """Format one passage as title, line break and text."""
    return Blocks((f"{passage.title}\n{passage.text}",))


@dataclass(frozen=True, slots=True)
class Template:
    """A prompt with placeholders.

    Attributes:
        name: "method/name", for error messages.
        turns: role and text of each turn.
        shots: demonstrations, each with a value for every placeholder of the user's turns, and the answer under ``output``.
    """

    name: str
    turns: tuple[tuple[Role, str], ...]
    shots: tuple[dict[str, str], ...] = ()

    def __call__(self, *, shots: int = 0, **values: str | Blocks) -> Chat:
        """Return the prompt with its placeholders filled in, and with the first ``shots`` demonstrations after the system turns.

        Raises:
            ValueError: a placeholder has no value, or a value has no placeholder.
            InputError: there are fewer than ``shots`` demonstrations.
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
    """Load the prompt ``name`` of a method.

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
    """Return the SHA-256 of every prompt file of the methods, keyed by "method/file"."""
    files = [(method, file) for method in methods for file in _folder(method).iterdir() if file.is_file()]
    return {f"{method}/{file.name}": hashlib.sha256(file.read_bytes()).hexdigest() for method, file in sorted(files, key=str)}
