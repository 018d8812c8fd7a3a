"""Grammar of words in Lucene's StandardTokenizer, as patterns whose letters are the classes of ``characters``.

It follows the word boundary rules (WB) of Unicode Standard Annex #29, keeping the segments that contain a letter, a digit, an ideograph or
a pictograph. It has three differences: a Hebrew letter required by a quote cannot also be the letter before a . or : or another
quote; text in South-East Asian scripts is not split until another script follows; and the rules after a pictograph are finer.
"""

from __future__ import annotations

import re

# WB4: extending characters belong to the preceding character.
_EXTENDING = "[xdzmtso]*"

# WB5-7, 9, 10: letters and digits stay together, with one . : ' between two letters, as in can't and example.com.
# WB11, 12: digits stay together, with one . , ; ' between two of them, as in 1,000.5.
# WB7a-c: a Hebrew letter may end with a single quote, and two of them have a double quote between them.
# WB13: Katakana stay together. WB13a, b: underscores and similar characters join all of these.
_RUN = """(k+|([ahl]([:.'][ahl])*|n([,.']n)*|h'|h"h)+)"""
_WORD = f"_*{_RUN}(_+{_RUN})*_*"

_SOUTH_EAST_ASIAN = "[cd]+"  # not split into words, which would need a dictionary
_IDEOGRAPH = "i"  # WB999: each is a word
_FLAG = "rr"  # WB15, 16

# WB3c: a joiner connects pictographs, and may precede the first; extending characters exclude styles, except for one at the end.
_DECORATION = "[xdzmo]*"
_PICTOGRAPH = f"[pl]{_DECORATION}s?"
_EMOJI = f"(z*{_PICTOGRAPH}|m{_DECORATION})(z+{_PICTOGRAPH}|zm{_DECORATION})*"
_KEYCAP = f"#{_DECORATION}s?o{_DECORATION}"


def _allow_extending(pattern: str) -> str:
    """Allow extending characters after each character of the pattern."""
    return re.sub(r"\[[^]]*\]|[^()|*+?]", rf"(\g<0>{_EXTENDING})", pattern)


PATTERN = "|".join([_allow_extending(f"{_WORD}|{_SOUTH_EAST_ASIAN}|{_IDEOGRAPH}|{_FLAG}"), _EMOJI, _KEYCAP])
