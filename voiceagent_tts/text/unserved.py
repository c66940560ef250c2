"""Languages that no voice speaks, or that one does not: which one a text seems to be in."""

import re
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
    code = detect_language(text, given or spoken[0]).partition("-")[0]
    known = {each.partition("-")[0] for each in ((given,) if given else spoken)}
    if code in known or (given and code in LATIN):
        return None
    return NAMES[code][0].capitalize()


def unserved_language(text: str) -> str | None:
    """Name of the language or script of a segment that is in none of `CODES`; None if it may be."""
    letters = [character for character in text if character.isalpha()]
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
