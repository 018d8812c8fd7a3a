"""Topics of TREC: its SGML, in which a field ends where the next begins, and XML.

<top><num> Number: 301 <title> climate report <desc> Description: …</top>
<topics><topic number="1"><query>climate report</query>…</topic></topics>
<topics><topic number="1">climate report</topic></topics>
<queries><query><qid>1</qid><content>climate report</content></query></queries>
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser

TOPIC_FORMS = "of XML and SGML, <top>, <topic>, and <query> in <queries> are read"
_TOPICS = ("top", "topic")
_NO_LETTER = re.compile(r"&#\w{9,}")  # Python parses no number of more than 4,300 digits


class Topic(defaultdict[str, str]):
    """The attributes and fields of a topic, by name in lower case."""


def read_topics(lines: Iterable[str]) -> Iterator[tuple[int, Topic]]:
    """Yield the line number of each topic, and the topic."""
    parser = _Parser()
    for line in lines:
        parser.feed(_NO_LETTER.sub("&#0", line))
    parser.close()
    yield from parser.topics


class _Parser(HTMLParser):
    """A parser of either kind: XML's would refuse SGML. Entities are characters here, never expanded by definitions of the file."""

    def __init__(self) -> None:
        super().__init__()
        self.topics = list[tuple[int, Topic]]()
        self._field, self._is_of_queries = "", False

    def set_cdata_mode(self, *_: object, **__: object) -> None:
        """Keep reading tags: newer Pythons would take all after a ``<title>`` without an end for its text."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a topic or a field."""
        self._is_of_queries |= tag == "queries"
        self._field = "topic" if tag == "query" and self._is_of_queries else tag
        if self._field in _TOPICS:
            self.topics.append((self.getpos()[0], Topic(str, ((name, value or "") for name, value in attrs))))

    def handle_endtag(self, tag: str) -> None:
        """End a field."""
        self._field = ""

    def handle_data(self, data: str) -> None:
        """Add to the current field."""
        if self.topics and self._field:
            self.topics[-1][1][self._field] += data
