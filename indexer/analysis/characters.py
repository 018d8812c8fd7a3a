"""Tables of Unicode properties: word-break class and lower case of each code point."""

from __future__ import annotations

from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

N_CODE_POINTS = 0x110000

_LINES = (files(__package__) / "word_breaks.txt").read_text(encoding="ascii").splitlines()
# Codes of the classes in the grammar's patterns. The number of a class is its position in this dictionary.
CLASSES = {line[4:]: line[2] for line in _LINES if line.startswith("@")}
OTHER, LETTER, PICTOGRAPHIC_LETTER = (list(CLASSES).index(name) for name in ("Other", "ALetter", "Pictographic_Letter"))

_HANGUL = range(0xAC00, 0xD7A4)
_LAST_CASED = 0x1E921  # last code point that differs from its lower case


def class_table() -> NDArray[np.uint8]:
    """Return the class number of every code point, shape (N_CODE_POINTS,)."""
    numbers = {name: number for number, name in enumerate(CLASSES)}
    table = np.full(N_CODE_POINTS, OTHER, dtype=np.uint8)
    for code_points, name in (line.split() for line in _LINES if line and line[0] not in "#@"):
        first, _, last = code_points.partition("..")
        table[int(first, 16) : int(last or first, 16) + 1] = numbers[name]
    return table


def lower_case_table(classes: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Return the lower case of each code point up to _LAST_CASED, shape (_LAST_CASED + 1,).

    The lower case of a code point is one code point, as in Java's ``Character.toLowerCase``: U+0130 becomes i. In Python, it becomes i
    and a combining dot. Only letters of word_breaks.txt are converted. Every supported Python knows these letters, so that the table
    is the same in all Python versions.
    """
    table = np.arange(_LAST_CASED + 1, dtype=np.uint32)
    is_letter = (classes[: len(table)] == LETTER) | (classes[: len(table)] == PICTOGRAPHIC_LETTER)
    is_letter[_HANGUL.start : _HANGUL.stop] = False
    for code_point in np.flatnonzero(is_letter).tolist():
        table[code_point] = ord(chr(code_point).lower()[0])
    return table
