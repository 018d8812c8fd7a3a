"""Porter's stemmer (M. F. Porter, An algorithm for suffix stripping, Program 14(3), 1980), with the paper's names of steps and measure.

Like Lucene and the author's later programs, it differs from the paper in three ways:

- Words of one or two units are unchanged.
- Step 2 replaces ``bli`` with ``ble``, in place of the paper's ``abli`` with ``able``.
- Step 2 also replaces ``logi`` with ``log``.

A word is an array of lower-case UTF-16 units, as in Java. Every unit other than a, e, i, o, u and y is a consonant, including digits,
apostrophes, letters of other scripts, and each half of a surrogate pair. Kernels change the end of a word in place and return the new
length.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.base.compiled import kernel

Units = NDArray[np.uint16]

_A, _D, _E, _G, _I, _L, _N, _O, _S, _U, _W, _X, _Y, _Z = b"adegilnosuwxyz"
_N_LETTERS = 26

# Rules of each step: a limit that the measure of the word without its suffix must exceed, and pairs of a suffix and its replacement.
# A letter before a dash must precede the suffix, and stays. If two suffixes can end the same word, the longer one comes first.
_RULES = [
    (-1, "sses:ss ies:i"),
    (-1, "at:ate bl:ble iz:ize"),
    (
        0,
        "ational:ate tional:tion enci:ence anci:ance izer:ize bli:ble alli:al entli:ent eli:e ousli:ous ization:ize ation:ate ator:ate "
        "alism:al iveness:ive fulness:ful ousness:ous aliti:al iviti:ive biliti:ble logi:log",
    ),
    (0, "icate:ic ative: alize:al iciti:ic ical:ic ful: ness:"),
    (1, "al: ance: ence: er: ic: able: ible: ant: ement: ment: ent: s-ion: t-ion: ou: ism: ate: iti: ous: ive: ize:"),
]
_STEP_1A, _END_OF_1B, _STEP_2, _STEP_3, _STEP_4 = np.arange(len(_RULES))  # numpy integers: numba would recompile for each Python int


class _Rule(NamedTuple):
    """A suffix rule. The rules of a step form groups by the suffix's penultimate letter; the first matching rule of a group applies."""

    group: int
    suffix: int  # the suffix and the letters that must precede it, as an integer with the last letter in the lowest byte
    n_before: int  # number of letters that must precede the suffix
    replacement: int  # as an integer with the first letter in the lowest byte


def _read_rule(step: int, text: str) -> _Rule:
    suffix, replacement = text.encode("ascii").split(b":")
    before = suffix.rpartition(b"-")[0]
    group = step * _N_LETTERS + suffix[-2] - _A
    return _Rule(group, int.from_bytes(suffix.replace(b"-", b"")), len(before), int.from_bytes(replacement, "little"))


_SORTED = sorted((_read_rule(step, text) for step, (_, rules) in enumerate(_RULES) for text in rules.split()), key=lambda rule: rule.group)
_GROUP, _SUFFIX, _N_BEFORE, _REPLACEMENT = np.array(_SORTED, dtype=np.int64).T.copy()
_GROUP_START = np.searchsorted(_GROUP, np.arange(len(_RULES) * _N_LETTERS + 1)).astype(np.int64)
_ABOVE = np.array([above for above, _ in _RULES], dtype=np.int64)


@kernel
def stem(word: Units, n: int) -> int:
    """Stem the word ``word[:n]`` in place and return the length of the stem, at most n."""
    if n <= 2:
        return n
    n = _step_1a(word, n)
    n = _step_1b(word, n)
    if word[n - 1] == _Y and _has_vowel(word, n - 1):  # step 1c
        word[n - 1] = _I
    for step in range(_STEP_2, _STEP_4 + 1):
        n = _replace(word, n, step)
    n = _step_5(word, n)
    return n


@kernel
def _replace(word: Units, n: int, step: int) -> int:
    """Apply the first matching rule of a step, if the measure of the word without the rule's suffix exceeds the step's limit."""
    if n < 2 or word[n - 2] < _A or word[n - 2] > _Z:
        return n
    group = step * _N_LETTERS + word[n - 2] - _A
    for rule in range(_GROUP_START[group], _GROUP_START[group + 1]):
        suffix, before = _SUFFIX[rule], n
        while suffix > 0 and before > 0 and word[before - 1] == suffix & 0xFF:
            suffix >>= 8
            before -= 1
        if suffix == 0:
            before += _N_BEFORE[rule]
            if _measure(word, before) <= _ABOVE[step]:
                return n
            replacement, n = _REPLACEMENT[rule], before
            while replacement > 0:
                word[n] = replacement & 0xFF
                replacement >>= 8
                n += 1
            return n
    return n


@kernel
def _step_1a(word: Units, n: int) -> int:
    """Remove the ending of a plural."""
    if word[n - 1] != _S:
        return n
    shorter = _replace(word, n, _STEP_1A)
    return n - 1 if shorter == n and word[n - 2] != _S else shorter


@kernel
def _step_1b(word: Units, n: int) -> int:
    """Remove the ending of a past tense or a present participle."""
    before = n
    if n >= 2 and word[n - 2] == _E and word[n - 1] == _D:
        if n >= 3 and word[n - 3] == _E:
            return n - 1 if _measure(word, n - 3) > 0 else n
        before = n - 2
    elif n >= 3 and word[n - 3] == _I and word[n - 2] == _N and word[n - 1] == _G:
        before = n - 3
    if before == n or not _has_vowel(word, before):
        return n
    n = _repair(word, before)
    return n


@kernel
def _repair(word: Units, n: int) -> int:
    """Finish step 1b: restore a final e, or remove one of two equal final consonants."""
    longer: int = _replace(word, n, _END_OF_1B)
    if longer > n:
        return longer
    if _ends_in_double_consonant(word, n):
        return n if word[n - 1] in (_L, _S, _Z) else n - 1
    if _ends_in_short_syllable(word, n) and _measure(word, n) == 1:
        word[n] = _E
        return n + 1
    return n


@kernel
def _step_5(word: Units, n: int) -> int:
    """Remove a final e, and one l of a final ll."""
    if word[n - 1] == _E:
        measure = _measure(word, n - 1)
        if measure > 1 or (measure == 1 and not _ends_in_short_syllable(word, n - 1)):
            n -= 1
    if word[n - 1] == _L and _ends_in_double_consonant(word, n) and _measure(word, n) > 1:
        n -= 1
    return n


@kernel
def _is_vowel(word: Units, i: int) -> bool:
    """Return whether a unit is a vowel. A y that follows a consonant is a vowel; any other y is a consonant."""
    is_turned = False
    while word[i] == _Y and i > 0:
        is_turned = not is_turned
        i -= 1
    return is_turned != (word[i] in (_A, _E, _I, _O, _U))


@kernel
def _has_vowel(word: Units, n: int) -> bool:
    for i in range(n):
        if _is_vowel(word, i):
            return True
    return False


@kernel
def _measure(word: Units, n: int) -> int:
    """Return the paper's m of ``word[:n]``: the number of consonants directly after a vowel."""
    measure = 0
    for i in range(1, n):
        if not _is_vowel(word, i) and _is_vowel(word, i - 1):
            measure += 1
    return measure


@kernel
def _ends_in_double_consonant(word: Units, n: int) -> bool:
    return n >= 2 and word[n - 1] == word[n - 2] and not _is_vowel(word, n - 1)


@kernel
def _ends_in_short_syllable(word: Units, n: int) -> bool:
    """Return whether the word ends in consonant, vowel, consonant, and the last letter is not w, x or y (the paper's ``*o``)."""
    if n < 3 or word[n - 1] in (_W, _X, _Y):
        return False
    return not _is_vowel(word, n - 1) and _is_vowel(word, n - 2) and not _is_vowel(word, n - 3)
