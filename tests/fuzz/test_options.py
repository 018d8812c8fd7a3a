"""Values of options as users write them yield a value of the field's type, or a one-line error."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzz.mutating import examples, mutations, read_or_refuse
from wikidx.base.artifacts.home import split_name
from wikidx.base.machine.devices import check_devices
from wikidx.indexer.naming import canonical_name
from wikidx.retrievers.options import SearchOptions
from wikidx.runtimes.assignments import parse_assignments
from wikidx.runtimes.cli.search import _factors
from wikidx.runtimes.llms.naming import parse_spec
from wikidx.runtimes.methods import METHODS, find_method

VALUES = (b"3", b"true", b"none", b"0.5", b'{"bm25": 0.5}', b'["a", "b"]', b"max", b"1e999", b"-1", b"")
KINDS: dict[str, Any] = {name: find_method(name).options for name in METHODS} | {"search": SearchOptions}
DEEP = "[" * 50_000
LONG = 200_000  # a refusal may repeat the input


def texts(*seeds: bytes) -> st.SearchStrategy[str]:
    return mutations(*seeds).map(lambda content: content.decode("utf-8", "surrogateescape"))  # as a command's arguments come


@pytest.mark.parametrize("kind", KINDS)
@examples(0.2)
@given(data=st.data())
def test_assignments(kind: str, data: st.DataObject) -> None:
    fields = dataclasses.fields(KINDS[kind])
    names = st.sampled_from([field.name for field in fields]) | texts(b"k")
    given = data.draw(st.lists(st.tuples(names, texts(*VALUES)).map("=".join) | texts(b"k=3"), max_size=3))
    found = read_or_refuse(lambda: parse_assignments(KINDS[kind], given, noun="option"), most=LONG)
    for assignment in given if found is not None else ():
        name, _, text = assignment.partition("=")
        value = getattr(found, name)
        assert value == text or value == _as_type(value, text), assignment


def _as_type(value: object, text: str) -> object:
    """Read a text as the type that came of it."""
    if value is None:
        return None if text.lower() == "none" else text
    if isinstance(value, bool):
        return text.lower() in ("true", "yes", "on", "1")
    if isinstance(value, tuple):
        return tuple(json.loads(text)) if text.lstrip().startswith("[") else (text,) if text else ()
    return json.loads(text) if isinstance(value, dict) or not isinstance(value, int | float) else type(value)(text)


@pytest.mark.parametrize("text", [DEEP, '{"a":' * 50_000, "9" * 400, "9" * 5_000, "1e400", "-1e400", "nan"], ids=range(7))
@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(SearchOptions)])
def test_values_that_python_cannot_hold(field: str, text: str) -> None:
    assert read_or_refuse(lambda: parse_assignments(SearchOptions, [f"{field}={text}"], noun="option of searches"), most=LONG) is None


@examples()
@given(weights=st.lists(texts(b"bm25=0.5", b"minilm=1"), max_size=2), spec=texts(b"openai:m@http://h/v1", b"judge=hf:/x", b"scripted:f"))
def test_weights_and_models(weights: list[str], spec: str) -> None:
    found = read_or_refuse(lambda: _factors(weights), most=LONG)
    assert not found or all(isinstance(factor, float) for factor in found.values())
    if found is not None:
        read_or_refuse(lambda: SearchOptions(fuse="weighted", weights=found), most=LONG)
    named = read_or_refuse(lambda: parse_spec(spec), most=LONG)
    assert named is None or spec == "".join(
        [f"{named.role}=" if named.role is not None else "", named.backend, ":", named.model, f"@{named.url}" if named.url else ""]
    )


@examples()
@given(name=texts(b"sample", b"wiki2018@10000", b"minilm-ivfpq", b"cuda:0,1"))
@example(name="sample@" + "9" * 5_000)
@example(name="cuda:" + "9" * 5_000)
def test_names(name: str) -> None:
    for read in (split_name, canonical_name, check_devices):
        read_or_refuse(lambda: read(name), most=LONG)  # noqa: B023 - called at once
