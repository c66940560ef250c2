"""Languages that no voice speaks, or that one does not: which one a text seems to be in."""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

from voiceagent_tts.text.language import (
    LATIN,
    NAMES,
    SCRIPTS,
    detect_language,
    rank_latin,
    script_name,
)
from voiceagent_tts.text.language_files import read_file

_FILE = read_file("unserved")
UNSERVED_LATIN: dict[str, str] = _FILE["latin"]
"""Other languages of Latin text, by code; such text is spoken as one of `LATIN`."""
_UNSERVED = 0.9
"""Probability from which text is reported to be in a language that no voice speaks."""
_UNSERVED_LETTERS = 12
"""Minimum letters in lower-case words before Latin text is reported; others may be names."""

_CYRILLIC = {name: {*letters} for name, letters in _FILE["cyrillic_letters"].items()}
_CYRILLIC_WORDS = {name: {*words.split()} for name, words in _FILE["cyrillic_words"].items()}
_GREETINGS = {name: {*words.split()} for name, words in _FILE["greetings"].items()}
_BULGARIAN = re.compile("ъ(?![еёюя])")
_RUSSIAN = frozenset("ыэё")
"""Letters that these languages lack: a text with one of them only quotes their words."""

_GREEK_LETTERS = "\u0370-\u03ff\u1f00-\u1fff"
_CYRILLIC_LETTERS = "\u0400-\u052f"
_MARKS = "\u0300-\u036f"  # an accent may be one of its own
_SIGN = re.compile(
    f"(?<![{_GREEK_LETTERS}{_MARKS}])[{_GREEK_LETTERS}]{{1,2}}(?![{_GREEK_LETTERS}{_MARKS}])"
    f"|(?<![{_CYRILLIC_LETTERS}{_MARKS}])[{_CYRILLIC_LETTERS}](?![{_CYRILLIC_LETTERS}{_MARKS}])"
)
"""Letters that stand for units, quantities and faces in a text of any language."""
_LETTERLIKE = range(0x2100, 0x2150)  # such as the signs of Ohm and litre


def unspoken_language(text: str, given: str | None, spoken: Sequence[str]) -> str | None:
    """Name of the language of a text that a voice does not speak; None if it may speak it.

    Args:
        text: one segment, or more.
        given: code of the language that the client named. Text in Latin letters is then taken to be
            in it, as quotes and names in any language may be.
        spoken: codes of the languages of the voice.
    """
    if (unserved := unserved_language(text)) is not None:
        return unserved
    code = detect_language(_without_signs(text), given or spoken[0]).partition("-")[0]
    known = {each.partition("-")[0] for each in ((given,) if given else spoken)}
    if code in known or (given and code in LATIN):
        return None
    return NAMES[code][0].capitalize()


def unserved_language(text: str) -> str | None:
    """Name of the language or script of a segment that is in none of `CODES`; None if it may be."""
    text = _without_signs(text)
    letters = [character for character in text if _is_letter(character)]
    if not letters:
        return None
    script, count = Counter(map(script_name, letters)).most_common(1)[0]
    if 2 * count < len(letters):
        return None
    if script == "LATIN":
        if sum(len(word) for word in text.split() if word[0].islower()) < _UNSERVED_LETTERS:
            return _unserved_greeting(text.lower())
        ranked = rank_latin(text)  # neighbours such as Danish and Swedish share it
        probability = sum(each for code, each in ranked if code in UNSERVED_LATIN)
        return UNSERVED_LATIN.get(ranked[0][0]) if probability >= _UNSERVED else None
    if script == "CYRILLIC":
        return _unserved_cyrillic(text.lower())
    return None if script in SCRIPTS else script.capitalize()


def _without_signs(text: str) -> str:
    """The text without letters that are signs, and with plain letters for wide and styled ones."""
    if text.isascii():
        return text
    return _SIGN.sub("", "".join(map(_plain_letter, text)))


def _plain_letter(character: str) -> str:
    if ord(character) in _LETTERLIKE:
        return ""
    plain = unicodedata.normalize("NFKC", character) if character.isalpha() else character
    return plain if len(plain) == 1 else character


def _is_letter(character: str) -> bool:
    """Whether it is a letter that has a script: not an apostrophe or another modifier of one."""
    return character.isalpha() and unicodedata.category(character) != "Lm"


def _unserved_greeting(text: str) -> str | None:
    """A language that at least half of the words are greetings of; the others may be a name."""
    words = re.findall(r"\w+", text)
    known = ((name, sum(word in own for word in words)) for name, own in _GREETINGS.items())
    return next((name for name, count in known if 2 * count >= len(words)), None)


def _unserved_cyrillic(text: str) -> str | None:
    letters, words = {*text}, {*re.findall(r"\w+", text)}
    found = [name for name, own in _CYRILLIC.items() if own & letters]
    if not found and not _RUSSIAN & letters:
        found = [name for name, own in _CYRILLIC_WORDS.items() if own & words]
        found += ["Bulgarian"] * (_BULGARIAN.search(text) is not None)
    return found[0] if found else None
