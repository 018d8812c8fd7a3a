"""Notation of pipelines, such as ``{bm25:0.3, minilm:0.7}minmax%50 >> simlm``, as RoutIR and PyTerrier have it.

    pipeline   = source { ">>" reranker [ "%" N ] }          each reranker scores what is before it
    source     = ( names | fusion ) [ "%" N ]                % keeps the best N of each query
    names      = name { "+" name }                           a+b is {a, b}rrf
    fusion     = "{" input { "," input } "}" rule            rule: rrf, rrf(k=60), minmax, zscore or weighted
    input      = pipeline [ ":" weight ]

A name is that of an index or a reranker, or ``remote:URL``; the port of a URL is not taken for a weight.
"""

from __future__ import annotations

import re
from typing import get_args

from wikidx.base.errors import InputError

from .tree import RRF_K, Fused, Node, Reranked, Rule, Source

_MAX_BRACES = 30  # far from Python's limit of recursion
_URL = r"https?://[^\s{}(),%:/]+(?::\d+(?![\d.]))?[^\s{}(),%>:]*"
_NAME = re.compile(rf"(?:{_URL}|[^\s{{}}(),%+>:]|:(?!\s*[-+\d.]+\s*[,}}]))+")
_WORD = re.compile(r"[A-Za-z]*")
_WEIGHT = re.compile(r"(?=[\d.])\d{0,9}(?:\.\d{1,9})?(?![\d.])")
_NUMBER = re.compile(r"[1-9]\d{0,8}(?!\d)")


def parse_pipeline(text: str) -> Node:
    """Parse a pipeline without validating its names; raises ``InputError`` with the position of an error."""
    parser = _Parser(text)
    node = parser.pipeline()
    parser.expect("", "'>>', '%' or the end")
    return node


class _Parser:
    def __init__(self, text: str) -> None:
        self._text, self._position = text, 0

    def pipeline(self) -> Node:
        node = self._fusion() if self._take("{") else self._names()
        while self._take(">>"):
            node = Reranked(node, self._match(_NAME, "a reranker"), self._keep())
        return node

    def expect(self, token: str, expected: str) -> None:
        """Take a token, "" for the end; raises ``InputError`` if there is another."""
        if not self._take(token) or (not token and self._position < len(self._text)):
            raise self._error(expected)

    def _names(self) -> Node:
        names = [self._match(_NAME, "a retriever or '{'")]
        while self._take("+"):
            names.append(self._match(_NAME, "a retriever"))
        keep = self._keep()
        return Source(names[0], keep) if len(names) == 1 else Fused(tuple(map(Source, names)), (1.0,) * len(names), keep=keep)

    def _fusion(self) -> Node:
        if self._text.count("{") > _MAX_BRACES:
            raise self._error(f"a pipeline of at most {_MAX_BRACES} braces")
        inputs, weights = [self.pipeline()], [self._weight()]
        while self._take(","):
            inputs.append(self.pipeline())
            weights.append(self._weight())
        self.expect("}", "',', '%', '>>', ':' and a weight, or '}'")
        if not any(weights):
            raise self._error("a weight above 0 before this")
        rule, k = self._rule(), RRF_K
        if rule == "rrf" and self._take("("):
            self.expect("k", "'k='")
            self.expect("=", "'='")
            k = int(self._match(_NUMBER, "a whole number from 1 to 999,999,999"))
            self.expect(")", "')'")
        return Fused(tuple(inputs), tuple(weights), rule, k, self._keep())

    def _rule(self) -> Rule:
        rules: dict[str, Rule] = {rule: rule for rule in get_args(Rule)}
        start, word = self._position, self._match(_WORD, "").lower()
        if word not in rules:
            self._position = start
            raise self._error(f"a rule of fusion ({', '.join(rules)})")
        return rules[word]

    def _weight(self) -> float:
        return float(self._match(_WEIGHT, "a weight from 0 on, of at most 9 digits before and after the point")) if self._take(":") else 1.0

    def _keep(self) -> int | None:
        return int(self._match(_NUMBER, "a whole number from 1 to 999,999,999")) if self._take("%") else None

    def _take(self, token: str) -> bool:
        """Skip white space, then the token if it is next; return whether it was."""
        while self._text[self._position : self._position + 1].isspace():
            self._position += 1
        is_next = self._text.startswith(token, self._position)
        self._position += len(token) * is_next
        return is_next

    def _match(self, pattern: re.Pattern[str], expected: str) -> str:
        self._take("")
        match = pattern.match(self._text, self._position)
        if match is None:
            raise self._error(expected)
        self._position = match.end()
        return match[0]

    def _error(self, expected: str) -> InputError:
        found = f"'{self._text[self._position :]:.20}'" if self._position < len(self._text) else "the end"
        return InputError(f"pipeline '{self._text:.200}', character {self._position + 1}: {expected} is expected, there is {found}")
