"""The table of question sets: every line is usable, and protocols name sets of a permitted size."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from wikidx.base.errors import UnknownNameError
from wikidx.runtimes.questions import FORMATS, PROTOCOLS
from wikidx.runtimes.questions.sets import find_set, published_sets


def test_every_line_of_the_table_is_usable() -> None:
    names = Counter(entry.key for entry in published_sets())
    assert max(names.values()) == 1
    for entry in published_sets():
        assert re.fullmatch(r"[a-z0-9][a-z0-9-]*:[a-z-]+", entry.key)
        assert entry.format in FORMATS
        assert re.fullmatch(r"https?://[a-z0-9.-]+/\S+", entry.file.url)
        assert entry.file.sha256 is None or re.fullmatch("[0-9a-f]{64}", entry.file.sha256)
        assert bool(entry.members) == entry.file.name.endswith((".zip", ".tar"))


def test_protocols_name_sets_of_a_permitted_size() -> None:
    named = {protocol.name: protocol for protocol in PROTOCOLS.values() if protocol.questions}
    assert len(named) == 22
    for protocol in named.values():
        entry = find_set(protocol.questions)
        assert entry is not None
        assert entry.key == protocol.questions
        assert entry.n in (protocol.n_in_file or (entry.n,))


def test_a_name_alone_means_the_first_split() -> None:
    assert [(found := find_set(name)) and found.key for name in ("nq", "nq:train", "hotpotqa", "nowhere")] == [
        "nq:test",
        "nq:train",
        "hotpotqa:dev",
        None,
    ]
    with pytest.raises(UnknownNameError, match=r"unknown split of 'nq' 'tets': did you mean 'test'\? known: dev, test, train"):
        find_set("nq:tets")
