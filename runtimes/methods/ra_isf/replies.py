"""Parsing of a model's verdicts: yes or no, or the numbers of relevant passages."""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

from wikidx.runtimes.methods.sentences import normalize_words

_YES = {"yes", "know", "relevant", "relevance"}
_SIDE = re.compile(r"\b(yes|no|unknow|unknown|irrelevant|irrelevance)\b")
_RELEVANT = re.compile(r"\b(?:(not|isn t|aren t)(?: \w+){0,3} )?relevant\b")
_NUMBERS = r"\d{1,9}(?:(?:\s*,\s*(?:and\s+)?|\s+(?:and|or|nor)\s+)\d{1,9})*"
_BARE_NUMBERS = re.compile(r"\W*\d+(?:(?:\W+|\W+and\W+)\d+)*\W*")
_AFTER_NOUN = re.compile(rf"(\b(?:passage|paragraph|document)s?\s+)({_NUMBERS})")
_AS_SUBJECT = re.compile(  # numbers in prose: alone in their place, or with a verdict
    rf"(^|[\n,;:.]|\b(?:only|but|while|whereas|except|except for|neither|not|are|and|yes|relevant)\s)\s*({_NUMBERS})"
    r"(?=\W*(?:$|[\n;]|\.\s|(?:is|are|was|were|do|does|not|relevant|irrelevant|yes|no|but|while|whereas)\b))"
)
_GROUP = re.compile(r"((?:\[[\d, ]+\](?:[^\S\n]|[,&]|(?:and|or|nor|as well as|passages?|paragraphs?|documents?)\b)*)+)")
_NOUNS = r"(?: +(?:the|passages?|paragraphs?|documents?))*[ :]*\Z"
_LIST_NUMBER = re.compile(r"^\s*(?:(\d+[.:)])\s+(?=(?:yes|no|not|relevant|irrelevant)\b)|\d+[.)]\s+(?=[a-z]))", re.MULTILINE)
_CLAUSE_END = re.compile(r"[\n;]|\.\s")
_EXCEPT = re.compile(r"\b(?:except(?: for)?|excluding|other than|(?:all|none|every\w*|each|no\w*)(?: \w+){0,3} but)" + _NOUNS)
_DENIED_BEFORE = re.compile(
    rf"{_EXCEPT.pattern}|\b(?:not|neither|unlike){_NOUNS}|^\W*(?:not relevant|irrelevant)\W*$"
    rf"|\b(?:not (?:\w+ )?relevant|irrelevant)(?: \w+)?\s*(?::|-|\bis\b|\bare\b){_NOUNS}"
)
_DENIED = re.compile(r"\birrelevant|\bunrelated|\bnot\b.*\brelevant")
_DENIED_AFTER = re.compile(
    rf"{_DENIED.pattern}|^\W*(?:(?:is|are|was|were|do|does|seems?|would)\b(?:\W+(?!relevant|but\b)\w+){{0,3}}?\W+)?(?:not|no)\b"
)
_ALL = re.compile(r"^\W*(?:yes\W+)?(?:all|every\w*|each)\b|\b(?:others|rest|other ones)\s+(?:is|are)\b(?!\s+(?:not|irrelevant))")


class Verdict(NamedTuple):
    """A verdict, yes or no.

    Attributes:
        is_yes: whether the verdict is yes; False if the reply has no verdict.
        is_readable: whether the reply has a verdict.
        score: probability of yes; None: not requested or unknown.
    """

    is_yes: bool
    is_readable: bool = True
    score: float | None = None


def parse_verdict(text: str) -> Verdict:
    """Parse a verdict from the whole reply, or else from its first decisive word, or else from its word "relevant", perhaps denied.

    The labels of the paper's sub-models ("know", "relevance" and their opposites) are verdicts as well. A positive label counts only as the
    whole reply, because "I do not know" contains "know".
    """
    plain = normalize_words(text)
    if plain in _YES:
        return Verdict(True)
    if side := _SIDE.search(plain):
        return Verdict(side[0] == "yes")
    relevant = _RELEVANT.search(plain)
    return Verdict(relevant is not None and relevant[1] is None, is_readable=relevant is not None)


def parse_relevant_numbers(text: str, n_passages: int) -> tuple[frozenset[int], bool]:
    """Return the numbers of the passages that a joint verdict names, and whether the verdict is readable.

    A reply that begins with "no" or "none" is readable and names no passages but exceptions. Passages that a clause calls irrelevant, in
    whatever order, and numbers outside 1 to ``n_passages`` are left out. "All" and "the others" are all that are not left out.
    """
    plain = re.sub(r"n['’]t\b", " not", unicodedata.normalize("NFKC", text).casefold())
    if _BARE_NUMBERS.fullmatch(plain):
        plain = _bracket(plain)
    elif "[" not in plain:
        plain = _AFTER_NOUN.sub(lambda found: found[1] + _bracket(found[2]), plain)
    plain = _LIST_NUMBER.sub(lambda found: _bracket(found[1] or ""), plain)
    plain = _AS_SUBJECT.sub(lambda found: f"{found[1]} {_bracket(found[2])}", plain)
    is_none = normalize_words(plain).split(" ")[0] in ("no", "none")
    accepted, denied, parts = set[int](), set[int](), _GROUP.split(plain)
    for before, group, after in zip(parts[::2], parts[1::2], parts[2::2], strict=False):
        label, verdict = _CLAUSE_END.split(before)[-1], _CLAUSE_END.split(after if after is parts[-1] else _DENIED_BEFORE.sub("", after))[0]
        is_denied = not _EXCEPT.search(label) if is_none else _DENIED_BEFORE.search(label) or _DENIED_AFTER.search(verdict)
        (denied if is_denied else accepted).update(int(number) for number in re.findall(r"\d{1,9}", group))
    if _ALL.search(plain) and not is_none and not _DENIED.search(parts[0]):
        accepted |= {*range(1, n_passages + 1)} - denied
    in_range = accepted & {*range(1, n_passages + 1)}
    return frozenset(in_range), bool(in_range or denied or is_none or _DENIED.search(plain))


def _bracket(text: str) -> str:
    """Return the numbers of a text in brackets."""
    return "".join(f"[{number}]" for number in re.findall(r"\d+", text))
