"""Prompts from text files.

``prompts/<method>/<name>.txt`` is a conversation. A line ``[origin] …`` says where the prompt comes from (one of ``ORIGINS``, perhaps with
details after a colon); a line ``[system]``, ``[user]`` or ``[assistant]`` begins a turn; ``{field}`` is a placeholder, and ``{form.slot}``
a place for the wording of the form of answers (``forms``). Other braces are literal, so JSON needs no escapes.

``prompts/<method>/<name>.shots.jsonl`` holds demonstrations, which become earlier turns. Each line has a value for every placeholder of the
user's turns, and the expected answer under ``output``. A line ``{"origin": "…"}`` says where they come from. A prompt without such a file
shows the demonstrations of the form, ``prompts/forms/<form>.shots.jsonl``, with an answer as its section ``[demonstration]`` says.

A file ``<name>.<form>.txt`` or ``<name>.<form>.shots.jsonl`` replaces that without form.

``use_prompts`` replaces files by others (``prompt_sets`` reads them).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import importlib.resources
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from typing import Any, Literal, NamedTuple, cast, get_args

from wikidx.base.errors import InputError
from wikidx.base.plugins import find_plug_in
from wikidx.corpora.passage import Passage
from wikidx.runtimes.llms.prompts import Chat, Message, Span

from .forms import SHORT, strip_citations

Role = Literal["system", "user", "assistant"]
Origin = Literal["paper", "paper, open", "authors' code", "ours"]
ORIGINS: tuple[Origin, ...] = get_args(Origin)
"""Origins of prompts and of defaults: "paper" states it; "paper, open": a reading of what the paper leaves open or contradicts; "authors'
code", or the code of a work that the paper follows; "ours": this project's."""

TEXT, SHOTS = ".txt", ".shots.jsonl"
FORMS_FOLDER, WORDING = "forms", "forms.json"

_ORIGIN = re.compile(r"\A\s*\[origin\][ \t]*(\S.*)\n")
_TURN = re.compile(r"^\[(system|user|assistant)\][ \t]*\n", re.MULTILINE)
_DEMONSTRATION = re.compile(r"^\[demonstration\][ \t]*\n(.*)\Z", re.MULTILINE | re.DOTALL)
_SLOT = re.compile(r"\{form\.([a-z_]+)\}")
_FIELD = re.compile(r"\{([a-z_]+)\}")
_BETWEEN = "\n\n"
EMPTY = {"summary": "", "knowledge": ""}  # fields without a value in demonstrations, as in RECOMP's, which have no passages
_POOLED = frozenset({"question", "passages", "documents", "earlier", "pairs", "answers", *EMPTY})  # fields of a form's demonstrations


class Prompts(NamedTuple):
    """Files that replace those of the package, and demonstrations that are drawn from training questions.

    Attributes:
        files: "method/file" -> content.
        drawn: question and answer of each drawn demonstration.
    """

    files: Mapping[str, str] = {}
    drawn: tuple[tuple[str, str], ...] = ()


OWN_PROMPTS = Prompts()
_USED: ContextVar[Prompts] = ContextVar("prompts", default=OWN_PROMPTS)


class Blocks(NamedTuple):
    """Texts that fill one placeholder, separated by blank lines. The texts may be cut to fit the context, from the end of the last text."""

    texts: tuple[str, ...]

    def __str__(self) -> str:
        """Return the texts as they fill the placeholder."""
        return _BETWEEN.join(self.texts)


def format_passages(passages: Sequence[Passage]) -> Blocks:
    """Format each passage as ``[number] title``, line break and text, numbered from 1."""
    return Blocks(tuple(f"[{number}] {passage.title}\n{passage.text}" for number, passage in enumerate(passages, 1)))


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
        takes_fewer: whether all demonstrations are shown if there are fewer than requested.
    """

    name: str
    turns: tuple[tuple[Role, str], ...]
    shots: tuple[dict[str, str], ...] = ()
    takes_fewer: bool = False

    @property
    def fields(self) -> frozenset[str]:
        """The placeholders of all turns."""
        return frozenset(field for _, text in self.turns for field in _FIELD.findall(text))

    @property
    def user_fields(self) -> frozenset[str]:
        """The placeholders of the user's turns, for which demonstrations have values."""
        return frozenset(field for role, text in self.turns if role == "user" for field in _FIELD.findall(text))

    def __call__(self, *, shots: int = 0, **values: str | Blocks) -> Chat:
        """Return the prompt with its placeholders filled in, and with the first ``shots`` demonstrations after the system turns.

        Raises:
            ValueError: a placeholder has no value, or a value has no placeholder.
            InputError: there are fewer than ``shots`` demonstrations.
        """
        if shots > len(self.shots) and not self.takes_fewer:
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
        if self.fields != set(values):
            raise ValueError(f"the prompt '{self.name}' has the fields {sorted(self.fields)}, the values are {sorted(values)}")


def _fill(role: Role, text: str, values: Mapping[str, str | Blocks]) -> Message:
    """Return a turn; a section without a value is left out with its heading, because models repeat what stands for nothing."""
    parts: list[str] = []
    spans: list[Span] = []
    length = end = 0
    for name in (name for name in _FIELD.findall(text) if not str(values[name])):
        text = re.sub(rf"(?:^[^\n{{}}]*:\n+)?^{{{name}}}(?:\n+|\Z)", "", text, flags=re.MULTILINE).strip()
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


def prompt_folder(method: str) -> Traversable:
    """Return the folder of a method's prompts; its sub-folders are prompt sets. That of a plug-in lies beside its file."""
    packaged = importlib.resources.files(__package__) / "prompts" / method
    plugged = None if packaged.is_dir() else find_plug_in("method", method)
    return packaged if plugged is None else plugged.file.parent / method


@functools.cache
def packaged_prompts(method: str) -> Mapping[str, str]:
    """Return the prompt files of a method, file -> content; raises ``InputError`` if a plug-in that asks models has none."""
    folder = prompt_folder(method)
    if not folder.is_dir():
        if (plugged := find_plug_in("method", method)) and not plugged.value.roles:
            return {}
        raise InputError(f"there is no folder {folder} with the prompts of the method '{method}': put them beside its file")
    return {file.name: file.read_bytes().decode() for file in folder.iterdir() if file.is_file()}


def read_prompt(method: str, file: str) -> str:
    """Return the content of a prompt file, the replaced one within ``use_prompts``; empty if there is no such file."""
    replaced = _USED.get().files
    return replaced[f"{method}/{file}"] if f"{method}/{file}" in replaced else packaged_prompts(method).get(file, "")


def load_template(method: str, name: str, form: str = SHORT) -> Template:
    """Load the prompt ``name`` of a method, with the wording and the demonstrations of a form of answers.

    Raises:
        ValueError: the file does not begin with a turn.
    """
    text = fill_slots(read_prompt(method, f"{name}.{form}{TEXT}") or read_prompt(method, name + TEXT), form)
    shots = read_prompt(method, f"{name}.{form}{SHOTS}") or read_prompt(method, name + SHOTS)
    pool = "" if shots else read_prompt(FORMS_FOLDER, form + SHOTS)
    return make_template(f"{method}/{name}", text, shots, pool, takes_fewer=bool(_USED.get().drawn))


@functools.cache
def make_template(name: str, text: str, shots: str, pool: str = "", *, takes_fewer: bool = False) -> Template:
    """Return the prompt of a prompt file and of a file of demonstrations, or else of those of a form.

    Raises:
        ValueError: the text does not begin with a turn, or a line of demonstrations is not JSON.
    """
    made = Template(name, parse(text), parse_shots(shots)[1], takes_fewer)
    demonstration = _DEMONSTRATION.search(text)
    shown = demonstration[1].strip() if demonstration else "{output}"
    if unknown := sorted({*_FIELD.findall(shown)} - {*_POOLED, "reasoning", "output"}):
        raise ValueError(f"the placeholder {{{unknown[0]}}} is unknown after [demonstration]")
    if not pool or not made.user_fields <= _POOLED:
        return made
    return dataclasses.replace(made, shots=tuple(_demonstrate(made, shown, record) for record in parse_shots(pool)[1]))


def _demonstrate(made: Template, shown: str, record: dict[str, Any]) -> dict[str, str]:
    """Return a form's demonstration as one of a prompt; ``shown`` has placeholders for what the model should write."""
    passages = [Passage("", title, text) for title, text in record["passages"]]
    steps = "\n".join(f"{number}. {question}\nAnswer: {answer}" for number, (question, answer) in enumerate(record["steps"], 1))
    values = {
        **EMPTY,
        **{name: record[name] for name in ("question", "reasoning", "output")},
        "passages": str(format_passages(passages)),
        "documents": "\n\n".join(passage.text for passage in passages),
        "earlier": steps,
        "pairs": steps,
        "answers": "\n".join(f"{number}. {answer}" for number, answer in enumerate(record["answers"], 1)),
    }
    if "passages" not in made.user_fields:
        values["output"] = strip_citations(values["output"])
    output = _FIELD.sub(lambda field: values[field[1]], shown)
    return {**{field: values[field] for field in made.user_fields}, "output": output}


def fill_slots(text: str, form: str) -> str:
    """Fill the places of a prompt for the wording of a form.

    Raises:
        ValueError: the form has no wording for a place.
    """
    wording = _wording(read_prompt(FORMS_FOLDER, WORDING))[form]

    def word(slot: re.Match[str]) -> str:
        if slot[1] not in wording:
            raise ValueError(f"the place {slot[0]} is unknown; it can have {', '.join(f'{{form.{name}}}' for name in wording)}")
        return wording[slot[1]]

    return _SLOT.sub(word, text)


@functools.cache
def _wording(text: str) -> dict[str, dict[str, str]]:
    forms: dict[str, dict[str, str]] = json.loads(text)
    return forms


def parse_origin(text: str) -> str:
    """Return the origin that a prompt file states, or an empty text."""
    origin = _ORIGIN.match(text)
    return origin[1].strip() if origin else ""


def parse_shots(text: str) -> tuple[str, tuple[dict[str, str], ...]]:
    """Return the origin that a file of demonstrations states, or an empty text, and the demonstrations.

    Raises:
        ValueError: a line is not JSON.
    """
    lines = [json.loads(line) for line in text.split("\n") if line.strip()]
    if lines and isinstance(lines[0], dict) and set(lines[0]) == {"origin"}:
        return str(lines[0]["origin"]), tuple(lines[1:])
    return "", tuple(lines)


def parse(text: str) -> tuple[tuple[Role, str], ...]:
    """Return the turns of a prompt file, each without surrounding blank lines.

    Raises:
        ValueError: the text does not begin with a turn.
    """
    before, *turns = _TURN.split(_DEMONSTRATION.sub("", _ORIGIN.sub("", text)))
    if before.strip() or not turns:
        raise ValueError(f"a prompt begins with [system], [user] or [assistant], not with {before.strip()[:40]!r}")
    return tuple((cast("Role", role), content.strip()) for role, content in zip(turns[::2], turns[1::2], strict=True))


@contextlib.contextmanager
def use_prompts(prompts: Prompts) -> Iterator[None]:
    """Replace prompts for what runs within."""
    token = _USED.set(prompts)
    try:
        yield
    finally:
        _USED.reset(token)


def prompt_hashes(methods: Sequence[str], prompts: Prompts = OWN_PROMPTS) -> dict[str, str]:
    """Return the SHA-256 of every prompt file of the methods and of the forms, keyed by "method/file", and of drawn demonstrations."""
    files = {f"{method}/{file}": content for method in (*methods, FORMS_FOLDER) for file, content in packaged_prompts(method).items()}
    drawn = {"drawn demonstrations": json.dumps(prompts.drawn)} if prompts.drawn else {}
    return {name: hashlib.sha256(content.encode()).hexdigest() for name, content in sorted({**files, **prompts.files, **drawn}.items())}
