"""Grammar of words in Lucene's StandardTokenizer, as a pattern over the codes of ``characters.CLASSES``.

It follows the word boundary rules (WB) of Unicode Standard Annex #29. A word is a segment with a letter, a digit, an ideograph or a
pictograph. Lucene differs from the annex in three ways:

- A Hebrew letter before a final single quote, or beside a double quote, is not also connected by a period, a colon or another such quote.
- A run of characters of South-East Asian scripts is one word.
- Extending characters after a pictograph follow rules of their own (``_EMOJI``).
"""

from __future__ import annotations

import re

# WB4: extending characters belong to the preceding character.
_EXTENDING = "[xdzmtso]*"

# WB5-7, 9, 10: letters and digits form a word. One . : ' between two letters belongs to the word, as in can't and example.com.
# WB8, 11, 12: one . , ; ' between two digits belongs to the word, as in 1,000.5.
# WB7a-c: a single quote after a Hebrew letter, or a double quote between two Hebrew letters, belongs to the word.
# WB13: a run of Katakana is a word. WB13a, b: underscores and similar characters connect words into one.
_RUN = """(k+|([ahl]([:.'][ahl])*|n([,.']n)*|h'|h"h)+)"""
_WORD = f"_*{_RUN}(_+{_RUN})*_*"

_SOUTH_EAST_ASIAN = "[cd]+"  # a run is one word: splitting it would need a dictionary
_IDEOGRAPH = "i"  # WB999: each ideograph is a word
_FLAG = "rr"  # WB15, 16: two regional indicators form a flag

# WB3c: joiners connect pictographs, and may precede the first. A pictograph may have one emoji style, at its end, and no text style.
_DECORATION = "[xdzmo]*"
_PICTOGRAPH = f"[pl]{_DECORATION}s?"
_EMOJI = f"(z*{_PICTOGRAPH}|m{_DECORATION})(z+{_PICTOGRAPH}|zm{_DECORATION})*"
_KEYCAP = f"#{_DECORATION}s?o{_DECORATION}"


def _allow_extending(pattern: str) -> str:
    """Allow extending characters after each character of the pattern."""
    return re.sub(r"\[[^]]*\]|[^()|*+?]", rf"(\g<0>{_EXTENDING})", pattern)


PATTERN = "|".join([_allow_extending(f"{_WORD}|{_SOUTH_EAST_ASIAN}|{_IDEOGRAPH}|{_FLAG}"), _EMOJI, _KEYCAP])
