"""The language of texts, as far as an English analyzer must know that it is another one: by script, and by common words."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

_MOST_TEXTS, _MOST_CHARACTERS = 400, 200_000
_LEAST_LETTERS, _LEAST_WORDS = 40, 60  # of fewer, nothing is said
_OTHER_SCRIPT = 0.4  # share of letters that are not Latin; of formulas and names, English texts have a few per cent
_COMMON = 0.12  # share of words that are a language's common ones: of prose a third, of English texts by other lists under .03
_TIMES_ENGLISH = 2.0
_SCRIPTS = {"CJK": "Chinese or Japanese", "HIRAGANA": "Japanese", "KATAKANA": "Japanese", "HANGUL": "Korean"}
# Common words without those that are English, too, such as "die" and "in", and without single letters of ASCII, as code and formulas have.
_WORDS = {
    "English": "the of and to is that for was with as by on are this be from at or it which an not have has were can but",
    "German": "der das und ist nicht ein eine zu den von mit sich des auf für dem auch es wird im bei einer nach werden aus dass sie als",
    "French": "le la les et est une dans du que pour qui sur pas par au avec ce sont il elle ne se cette des un aux",
    "Spanish": "el la los las de que en un una por con para del se es su al lo como más",
    "Italian": "il di che la è un una per non del della con sono da si dei gli nel alla le",
    "Portuguese": "os de que do da em um uma para com não por na dos se mais ao é",
    "Dutch": "de het een en van dat niet te zijn op voor met ook er aan door bij naar wordt",
    "Swedish": "och att det som en på är av för med den till inte ett har de om",
    "Danish or Norwegian": "og det som er på en af med den til ikke de et har av å",
    "Polish": "na się nie jest że jak po przez od dla",
    "Czech": "se na je že pro ale jako jeho byl",
    "Finnish": "ja ei että oli hän ovat kun mutta myös joka sen olla",
    "Hungarian": "az és hogy nem egy ez volt meg csak mint",
    "Turkish": "ve bir bu için ile olarak çok daha olan gibi",
    "Romanian": "și în de la cu pe care nu din este un ca",
    "Indonesian": "yang dan di dengan untuk dari ini pada tidak dalam adalah",
    "Vietnamese": "và của là có các được trong cho một những",
}
_LISTS = {language: frozenset(words.split()) for language, words in _WORDS.items()}


def foreign_language(texts: Sequence[str]) -> str:
    """Return the language or script of texts that are not English, such as "German" or "Cyrillic"; "" if they are, or if none is found."""
    texts = texts[:: max(1, len(texts) // _MOST_TEXTS)]
    sample = " ".join(text[: _MOST_CHARACTERS // len(texts)] for text in texts)
    scripts = Counter[str]()
    for character, count in Counter(sample).items():
        if character.isalpha():
            scripts[unicodedata.name(character, "").partition(" ")[0]] += count
    del scripts[""]
    n_letters, n_latin = scripts.total(), scripts["LATIN"]
    if n_letters >= _LEAST_LETTERS and n_letters - n_latin > _OTHER_SCRIPT * n_letters:
        del scripts["LATIN"]
        script = scripts.most_common(1)[0][0]
        if script == "CJK" and scripts["HIRAGANA"] + scripts["KATAKANA"] > _OTHER_SCRIPT * scripts["CJK"]:
            return "Japanese"
        return _SCRIPTS.get(script, script.capitalize())
    return _by_words(re.findall(r"[^\W\d_]+", sample.casefold()))


def _by_words(words: Sequence[str]) -> str:
    counts = Counter(words)
    shares = {language: sum(counts[word] for word in common) / max(1, len(words)) for language, common in _LISTS.items()}
    language = max(shares, key=lambda name: shares[name])
    is_told = len(words) >= _LEAST_WORDS and shares[language] >= max(_COMMON, _TIMES_ENGLISH * shares["English"])
    return language if is_told and language != "English" else ""
