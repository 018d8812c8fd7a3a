"""Replacement of a method's prompts: by a prompt set of the package, by a user's folder, or by demonstrations from training questions.

A set is a folder with files of the same names as those in ``prompts/<method>``; files that it lacks stay the method's own.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from wikidx.base.errors import InputError
from wikidx.base.registry import unknown_name_error
from wikidx.corpora.passage import text_key
from wikidx.corpora.reading.compression import read_text

from .base import Answer, Method, list_options
from .expansion import FOLDER as EXPANSION
from .forms import FORMS, SHORT
from .requests import gather, label, retrieve
from .templates import (
    EMPTY,
    FORMS_FOLDER,
    SHOTS,
    TEXT,
    Prompts,
    fill_slots,
    format_passages,
    load_template,
    make_template,
    packaged_prompts,
    parse_origin,
    parse_shots,
    prompt_folder,
    prompt_hashes,
    use_prompts,
)

DEMONSTRATIONS = "demonstrations"
"""Label, in the trace, of searches for the passages of drawn demonstrations."""


class PromptFile(NamedTuple):
    """A prompt file, where it comes from, and the number of its demonstrations (None: a file without any)."""

    name: str
    origin: str
    demonstrations: int | None = None


def prompt_sets(method: str) -> list[str]:
    """Return the names of a method's prompt sets in the package."""
    folder = prompt_folder(method)
    return sorted(each.name for each in folder.iterdir() if each.is_dir()) if folder.is_dir() else []


def hash_prompts(method: Method, expand: str) -> dict[str, str]:
    """Return the SHA-256 of every prompt file that a method uses: its own, its parts', and those that expand queries if it does."""
    return prompt_hashes([method.name, *method.parts, *([EXPANSION] if expand != "none" else [])], method.prompts)


def read_prompt_set(method: str, name: str, parts: Sequence[str] = ()) -> dict[str, str]:
    """Return the files of a prompt set of the package, or else of a folder: "method/file" -> content.

    Sub-folders of the names of ``parts``, the methods that this one runs, have files for these.

    Raises:
        UnknownNameError: a file has no counterpart among the method's prompts, or a sub-folder is that of no part.
        InputError: there is no such set or folder, a prompt lacks a placeholder or has an unknown one, or a demonstration lacks a value.
    """
    sets = prompt_sets(method)
    folder = prompt_folder(method) / name if name in sets else Path(name)
    if not folder.is_dir():
        has = f"its prompt sets are {', '.join(sets)}" if sets else "it has no prompt sets"
        raise InputError(f"there is no folder {name} with prompts for '{method}', and {has}")
    folders = {each.name: each for each in folder.iterdir() if parts and each.is_dir() and not each.name.startswith(".")}
    if unknown := sorted({*folders} - {*parts}):
        raise unknown_name_error(f"part of '{method}'", unknown[0], parts)
    files = {f"{name}/{file}": content for name, each in {method: folder, **folders}.items() for file, content in _read_folder(name, each)}
    if not files:
        raise InputError(f"{folder} has no prompts: give it files such as {next(iter(sorted(packaged_prompts(method))))}")
    return files


def _read_folder(method: str, folder: Any) -> list[tuple[str, str]]:  # noqa: ANN401 - a path, of the package's files or of the user's
    """Return name and content of each prompt file of a folder, sorted; raises as ``read_prompt_set`` does."""
    packaged = packaged_prompts(method)
    known = sorted({*packaged, *(_with_suffix(file, form) for file in packaged if file.endswith(TEXT) for form in ("", *FORMS))})
    files = dict[str, str]()
    for file in folder.iterdir():
        if not file.is_file() or file.name.startswith("."):
            continue
        if file.name not in known:
            raise unknown_name_error(f"prompt of '{method}'", file.name, known)
        files[file.name] = read_text(Path(str(file)))
    for file_name in files:
        try:
            _check_file(method, file_name, {**packaged, **files})
        except ValueError as error:
            raise InputError(f"{folder / file_name}: {error}") from None
    return sorted(files.items())


def _with_suffix(file: str, form: str) -> str:
    """Return the name of a prompt's file of demonstrations, of all forms or of one."""
    name = file.removesuffix(TEXT)
    return f"{name}.{form}{SHOTS}" if form else name + SHOTS


def _check_file(method: str, file: str, files: Mapping[str, str]) -> None:
    """Check a prompt file, with the demonstrations that are shown with it, against the method's own.

    Raises:
        ValueError: the reason why the method cannot use it.
    """
    packaged = packaged_prompts(method)
    if not file.endswith((TEXT, SHOTS)):
        if _shape(json.loads(files[file])) != _shape(json.loads(packaged[file])):
            raise ValueError(f"it has other names than the {file} of '{method}'")
        return
    of_form = file.removesuffix(SHOTS).removesuffix(TEXT)
    name, _, form = of_form.partition(".")
    text = of_form + TEXT if of_form + TEXT in files else name + TEXT
    made = make_template(f"{method}/{name}", fill_slots(files[text], form or SHORT), files.get(of_form + SHOTS, ""))
    own = make_template(made.name, fill_slots(packaged[text], form or SHORT), "")
    if lacking := sorted(own.fields - made.fields):
        raise ValueError(f"the placeholder {{{lacking[0]}}} is missing")
    if unknown := sorted(made.fields - own.fields):
        raise ValueError(f"the placeholder {{{unknown[0]}}} is unknown; it can have {', '.join(f'{{{field}}}' for field in own.fields)}")
    shots: tuple[Any, ...] = made.shots  # as read: nothing has checked them
    for number, shot in enumerate(shots, 1):
        values = {*made.user_fields, "output"}
        if not isinstance(shot, dict) or not values <= set(shot) or not all(isinstance(shot[value], str) for value in values):
            raise ValueError(f"demonstration {number} of {of_form + SHOTS} needs a text for each of {', '.join(sorted(values))}")


def _shape(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return the names of a JSON object's sections and of their fields."""
    return {section: sorted(fields) for section, fields in value.items() if isinstance(fields, dict)}


def with_prompts(method: Method, files: Mapping[str, str], drawn: Sequence[tuple[str, str]] = ()) -> Method:
    """Return a method with replaced prompts.

    Args:
        method: a method with the prompts of the package.
        files: "method/file" -> content, as ``read_prompt_set`` returns them.
        drawn: question and answer of each demonstration that replaces those of the prompts in ``method.demonstrated``. The passages of a
            demonstration are those that a search with its question finds. No question is its own demonstration. Other prompts show all
            of their own demonstrations if the option ``shots`` requests more.
    """
    prompts = Prompts(files, tuple(drawn))

    @functools.wraps(method.run)
    async def run(question: str, options: Any) -> Answer:  # noqa: ANN401 - the method's own options
        others = [pair for pair in prompts.drawn if text_key(pair[0]) != text_key(question)]
        with use_prompts(prompts):
            shots = await _demonstrate(method, others, options) if drawn else {}
        with use_prompts(prompts._replace(files={**files, **shots})):
            return await method.run(question, options)

    return dataclasses.replace(method, run=run, prompts=prompts)


async def _demonstrate(method: Method, drawn: Sequence[tuple[str, str]], options: Any) -> dict[str, str]:  # noqa: ANN401 - the method's own
    """Return files of drawn demonstrations, "method/file" -> content.

    Raises:
        InputError: with these options, no prompt shows such demonstrations.
    """
    names = method.demonstrated(options)
    if not names or not options.shots:
        reason = "the option 'shots' is 0" if names else f"a question with its answer demonstrates no prompt; write files *{SHOTS} instead"
        raise InputError(f"demonstrations are drawn for '{method.name}', but {reason}")
    templates = [load_template(method.name, name) for name in names]
    passages = [""] * len(drawn)
    if any("passages" in template.user_fields for template in templates):
        with label(DEMONSTRATIONS):
            found = await gather(*(retrieve(question, options.k) for question, _ in drawn))
        passages = [str(format_passages(each)) for each in found]
    content = "\n".join(
        json.dumps(
            {**EMPTY, "question": question, "passages": each, "earlier": "", "output": answer},
            ensure_ascii=False,
            sort_keys=True,
        )
        for (question, answer), each in zip(drawn, passages, strict=True)
    )
    return {f"{template.name}{SHOTS}": content for template in templates}


def list_prompts(method: Method) -> Iterator[PromptFile]:
    """Yield the prompt files of a method, of those that it runs, and of the forms of answers, with their origins."""
    files = {f"{name}/{file}": content for name in (method.name, *method.parts) for file, content in packaged_prompts(name).items()}
    if any(each.name == "form" for each in list_options(method.options())):
        files |= {f"{FORMS_FOLDER}/{file}": content for file, content in packaged_prompts(FORMS_FOLDER).items()}
    for path, content in sorted({**files, **method.prompts.files}.items()):
        name = path.removeprefix(f"{method.name}/")
        if name.endswith(SHOTS):
            origin, shots = parse_shots(content)
            yield PromptFile(name, origin, len(shots))
        elif name.endswith(TEXT):
            yield PromptFile(name, parse_origin(content))
        else:
            yield PromptFile(name, json.loads(content).get("origin", ""))
