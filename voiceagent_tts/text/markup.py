"""The tags that a text may contain where its client asked for markup.

| tag | effect |
|---|---|
| `<break time="300ms"/>` | silence; `ms` or `s`, at most ten seconds |
| `<spell>A7-42X</spell>` | character by character, in groups |
| `<say-as interpret-as="characters">` | as `spell`; also `spell-out`, `digits` and `telephone` |
| `<sub alias="...">` | the alias is said |
| `<phoneme alphabet="ipa" ph="...">` | the IPA is said, by engines that read it |
| `<<t|ə|m|ˈ|ɑ|t|əʊ>>` | the IPA is said, as Cartesia writes it; other engines read its letters |
| `<speak>` | nothing |

Any other tag, and one of these that is not written as above, is text as it is without markup. An
element has no other tags inside.
"""

import re
import unicodedata
from dataclasses import dataclass

from voiceagent_tts.core import ms_to_samples
from voiceagent_tts.text.entries import UNDECIDED, Undecided
from voiceagent_tts.text.words import is_syllabic

MAX_BREAK_MS = 10_000
MAX_TAG_CHARS = 160
MAX_ELEMENT_CHARS = 240
"""Longest element with its tags: it fits into a segment, as no segment ends inside one."""

_NAMES = ("break", "spell", "say-as", "sub", "phoneme", "speak")
_ATTRIBUTE = r"\s+[A-Za-z-]+\s*=\s*(?:\"[^\"<>]*\"|'[^'<>]*')"
_TAG = re.compile(
    rf"<(?P<close>/?)(?P<name>[A-Za-z-]+)(?P<attributes>(?:{_ATTRIBUTE})*)\s*(?P<empty>/?)>"
)
_NAME = re.compile(r"</?(?P<name>[A-Za-z-]*)(?P<rest>[^A-Za-z-][^<>]*)?")
_ATTRIBUTES = re.compile(r"([A-Za-z-]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")
_TIME = re.compile(r"\+?(\d{1,9}(?:\.\d{0,9})?|\.\d{1,9})\s*(ms|s)")
_PHONES = re.compile(r"<<([^\s<>|]+(?:\|[^\s<>|]+)*)>>")
_PHONES_BEGUN = re.compile(r"<<[^\s<>]*>?")
_SPELLED = frozenset(("characters", "spell-out", "digits", "telephone"))

_GROUP = re.compile(r"[^\s\-‐‑‒–—./\\():;,_|]+")
"""A group as written: characters between separators, which are pauses."""
_WHOLE_CHARS = 4
"""Longest group that is not divided."""
_GROUP_CHARS = 3


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag or an element.

    Args:
        char_end: index of the first character after it.
        said: what is said for it; empty for nothing.
        pause_samples: silence in its place.
    """

    char_end: int
    said: str = ""
    ipa: str | None = None
    pause_samples: int = 0


def match_tag(text: str, start: int) -> Tag | Undecided | None:
    """Read the tag or element that begins at `start`, where `text` has a `<`.

    Returns:
        None if it is text; `UNDECIDED` if it may become a tag with more text.
    """
    if text.startswith("<<", start):
        return _match_phones(text[start : start + MAX_TAG_CHARS], start)
    tag = _TAG.match(text, start, start + MAX_TAG_CHARS)
    if tag is None:
        return UNDECIDED if _may_become_tag(text[start : start + MAX_TAG_CHARS]) else None
    name = tag["name"].casefold()
    if name not in _NAMES:
        return None
    if name == "speak" or tag["close"]:
        return Tag(tag.end())
    attributes = {
        key.casefold(): double or single
        for key, double, single in _ATTRIBUTES.findall(tag["attributes"])
    }
    if name == "break":
        pause_ms = _break_ms(attributes)
        return None if pause_ms is None else Tag(tag.end(), pause_samples=ms_to_samples(pause_ms))
    if tag["empty"] or not _is_known(name, attributes):
        return None
    # No more is looked at than an element may have, so that many tags take no more time each.
    element = _element(text[tag.end() : start + MAX_ELEMENT_CHARS + 1], tag.end(), name, attributes)
    end = len(text) if isinstance(element, Undecided) else element.char_end if element else start
    return None if end - start > MAX_ELEMENT_CHARS else element


def phoneme(word: str, ipa: str) -> str | None:
    """The element that says `word` as `ipa`; None if these cannot be in one."""
    element = f'<phoneme alphabet="ipa" ph="{ipa.strip()}">{word}</phoneme>'
    tag = match_tag(element, 0)
    is_whole = isinstance(tag, Tag) and tag.char_end == len(element)
    return element if is_whole else None


def _match_phones(beginning: str, start: int) -> Tag | Undecided | None:
    """Read a block of phones, the `beginning` of the text at `start`."""
    block = _PHONES.match(beginning)
    if block is None:
        is_begun = _PHONES_BEGUN.fullmatch(beginning) and len(beginning) < MAX_TAG_CHARS
        return UNDECIDED if is_begun else None
    ipa = block[1].replace("|", "")
    letters = "".join(each for each in ipa if unicodedata.category(each) in ("Ll", "Lu", "Lo"))
    return Tag(start + block.end(), letters, ipa)


def _may_become_tag(beginning: str) -> bool:
    named = _NAME.fullmatch(beginning)
    if named is None or len(beginning) >= MAX_TAG_CHARS:
        return False
    name = named["name"].casefold()
    if named["rest"] is None:
        return any(known.startswith(name) for known in _NAMES)
    return name in _NAMES


def _break_ms(attributes: dict[str, str]) -> float | None:
    time = _TIME.fullmatch(attributes.get("time", "").strip())
    if time is None:
        return None
    return min(float(time[1]) * (1000 if time[2] == "s" else 1), MAX_BREAK_MS)


def _is_known(name: str, attributes: dict[str, str]) -> bool:
    match name:
        case "say-as":
            return attributes.get("interpret-as", "").casefold() in _SPELLED
        case "sub":
            return "alias" in attributes
        case "phoneme":
            return bool(attributes.get("ph")) and attributes.get("alphabet") == "ipa"
        case _:
            return name == "spell"


def _element(
    rest: str, start: int, name: str, attributes: dict[str, str]
) -> Tag | Undecided | None:
    """Read the content of an element and its closing tag: `rest`, which begins at `start`."""
    opened = rest.find("<")
    if opened < 0:
        return UNDECIDED
    closing = re.compile(rf"</{name}\s*>", re.IGNORECASE).match(rest, opened)
    if closing is None:
        beginning = rest[opened:].casefold().rstrip()
        return UNDECIDED if f"</{name}".startswith(beginning) else None
    content, end = rest[:opened], start + closing.end()
    match name:
        case "sub":
            return Tag(end, attributes["alias"])
        case "phoneme":
            return Tag(end, content, attributes["ph"])
        case _:
            return Tag(end, spell(content))


def spell(code: str) -> str:
    r"""What is said for `code`, character by character; empty without a letter or digit.

    "A7-42X" becomes "A-7, 4 2 X": a comma makes a pause, and the hyphen keeps an English voice from
    reading a single "A" as the article.

    A group ends at white space and at `- . / \ ( ) : ; , _ |`. A longer group than
    four characters is said in groups of three, the last of two to four. A symbol such as `+` is
    said with the character after it.
    """
    groups = [_spelled(group) for run in _GROUP.findall(code) for group in _groups(_units(run))]
    return ", ".join(groups)


def _units(run: str) -> list[str]:
    """Letters and digits of a run, each with the symbols and marks that belong to it."""
    units: list[str] = []
    symbols = ""
    for character in run:
        if character.isalnum():
            units.append(symbols + _said(character))
            symbols = ""
        else:
            symbols += character
    if units:
        units[-1] += symbols
    return units


def _said(character: str) -> str:
    upper = character.upper()
    return upper if len(upper) == 1 else character


def _groups(units: list[str]) -> list[list[str]]:
    if not units:
        return []
    groups: list[list[str]] = []
    while len(units) > _WHOLE_CHARS:
        groups.append(units[:_GROUP_CHARS])
        units = units[_GROUP_CHARS:]
    return [*groups, units]


def _spelled(units: list[str]) -> str:
    said = units[0]
    for before, unit in zip(units, units[1:], strict=False):
        joins = before[-1].isalpha() and not is_syllabic(before[-1])
        said += ("-" if joins else " ") + unit
    return said
