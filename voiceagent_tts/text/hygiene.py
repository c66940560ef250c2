r"""Hygiene: the characters of a text that a voice should speak, and the origin of each.

LLMs write for screens. Skipped are control and format characters, lone surrogates, variation
selectors, emoji, decorative symbols, HTML-like tags, and the marks of markdown: emphasis, code
ticks and fences, headings, quotes, list bullets, rules, table borders, link targets and URL
schemes. Replaced are:

- white space of every kind, and unspoken characters between words, by one space;
- a paragraph, heading, list-item or table-row border without punctuation by a full stop, and a
  table's `|`, `•`, `--` or an arrow by a comma, so that each becomes a pause;
- an underscore inside a word by a space (`snake_case`), `*` between numbers by `×`;
- typographic forms (full-width, mathematical, ligatures, decomposed) by their plain letters.

Everything else stays as written: "3.5", "$42.50", "C#", "#5", "a/b", "me@example.com". Markers are
handled without their partners, because the text is one segment and the partner may be in another.
This module knows no language: engines read numbers and abbreviations themselves.
"""

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

from voiceagent_tts.text.punctuation import CLAUSE_ENDS, SENTENCE_ENDS

# Placeholders for a full stop, a comma and a gap. `_plain` removes these characters from the input.
_STOP = "\u2029"
_COMMA = "\u2028"
_GAP = "\ufffc"


@dataclass(frozen=True, slots=True)
class Speakable:
    """Cleaned text.

    Attributes:
        spoken: characters to speak.
        offsets: index in the original text for each of them; non-decreasing.
    """

    spoken: str
    offsets: tuple[int, ...]


def speakable(text: str) -> Speakable:
    """Return the spoken form of one segment; empty if there is nothing to speak.

    The time is linear in the length of `text`, whatever it contains.
    """
    if _CLEAN.fullmatch(text):
        return Speakable(text, tuple(range(len(text))))
    return _cleaned(text)


def _cleaned(text: str) -> Speakable:
    draft = _plain_characters(text)
    for rule in _RULES:
        draft = _apply(rule, draft)
    return _joined(draft)


@dataclass(frozen=True, slots=True)
class _Rule:
    """Replaces every match by `before`, the match's group `kept` (if it has one) and `after`."""

    pattern: re.Pattern[str]
    before: str = ""
    after: str = ""


def _rule(pattern: str, before: str = "", after: str = "") -> _Rule:
    return _Rule(re.compile(pattern, re.MULTILINE), before, after)


_TARGET = r"\((?:[^()\s]|\([^()\s]*\))*+(?: +\"[^\"\n]*\")? *\)"
_BLOCK_TAG = r"</?(?:br|p|div|li|ul|ol|tr|td|th|h[1-6])(?:[ /][^<>]*)?>"

# No pattern backtracks over the same characters from many starts: a run is matched whole
# (possessive `*+`, `++`), or ends at the character at which the next attempt begins.
_RULES = (
    # Lines
    _rule(r"^ *+(?:`{3,}|~{3,})[^\n`]*$", _STOP),
    _rule(r"^ *+(?:(?:[-=] *+){3,}|(?:\* *+){3,}|(?:_ *+){3,})$", _STOP),
    _rule(r"^ *+\|?+(?: *+:?-++:? *+\|)++ *+(?:-++:?)? *+$", _STOP),
    _rule(r"^ *+(?:> ?)+"),
    _rule(r"^ *+#{1,6} +(?P<kept>[^\n]*)", _STOP, _STOP),
    _rule(rf"^ *+(?:[-*+•‣◦–—] +(?:\[[ xX]\] )?|\||{_GAP})", _STOP),
    _rule(r"^ *+(?P<kept>\d{1,3}[.)] )", _STOP),
    _rule(r"\n *+\n", _STOP),
    # Links and tags
    _rule(rf"!\[(?P<kept>[^\[\]]*+)\]{_TARGET}"),
    _rule(rf"\[(?P<kept>[^\[\]]*+)\]{_TARGET}"),
    _rule(r"\[\^[^\[\]\s]*+\]"),
    _rule(r"\[(?P<kept>[^\[\]]++)\]\[[^\[\]]*+\]"),
    _rule(rf"\]{_TARGET}"),
    _rule(_BLOCK_TAG, _STOP),
    _rule(r"</?[A-Za-z][A-Za-z0-9-]*+(?:[ \n/][^<>]*+)?>|<!--[^<>]*+>"),
    _rule(r"<(?P<kept>[^<>\s]++)>"),
    _rule(r"(?<![^\W_])(?:https?://|mailto:)"),
    # Marks
    _rule(r"\\(?=[^\w\s])"),
    _rule(r"(?:(?<=\d)|(?<=\d ))\*(?= ?\d)", "×"),
    _rule(r"`++|~{2,}+|\*++|#{2,}+"),
    _rule(r"(?<=[^\W_])_++(?=[^\W_])", _GAP),
    _rule(r"_++"),
    _rule(r"-{2,}+|[|•‣◦]", _COMMA),
    _rule(r"={2,}+|[\[\]{}\\]", _GAP),
)


_CLEAN = re.compile(
    r"(?:[A-Za-z0-9À-ÿΆΈ-ΊΌΎ-ΡΣ-ώЀ-ҁҊ-ӿ々〇ぁ-んァ-ヺー一-鿿가-힣.,;!?'\"()%&$€£°’‘“”«»…、。，！？；：「」『』·・]"
    r"|(?<!mailto):|(?<!/)/(?!/)|(?<=\w)-(?=\w)|(?<=[^\s]) (?=[^\s]))*+"
)
"""Texts that stay as they are: no rule matches in them, no character is replaced, and none composes
with the one before. Most words are such texts, and are read fifteen times as fast."""


def _apply(rule: _Rule, draft: Speakable) -> Speakable:
    parts: list[str] = []
    offsets: list[int] = []
    position = 0
    keeps = "kept" in rule.pattern.groupindex
    for match in rule.pattern.finditer(draft.spoken):
        kept = match.span("kept") if keeps else (match.end(), match.end())
        parts += (draft.spoken[position : match.start()], rule.before)
        parts += (draft.spoken[slice(*kept)], rule.after)
        offsets += draft.offsets[position : match.start()]
        offsets += [draft.offsets[match.start()]] * len(rule.before)
        offsets += draft.offsets[slice(*kept)]
        offsets += [draft.offsets[match.end() - 1]] * len(rule.after)
        position = match.end()
    if not position:
        return draft
    parts.append(draft.spoken[position:])
    offsets += draft.offsets[position:]
    return Speakable("".join(parts), tuple(offsets))


def _plain_characters(text: str) -> Speakable:
    plain: list[str] = []
    offsets: list[int] = []
    for offset, character in enumerate(text):
        for piece in _plain(character):
            if plain and _composes(plain[-1], piece):
                plain[-1] = unicodedata.normalize("NFC", plain[-1] + piece)
            else:
                plain.append(piece)
                offsets.append(offset)
    return Speakable("".join(plain), tuple(offsets))


def _composes(base: str, character: str) -> bool:
    """Whether both compose into one letter (a combining mark, a Hangul jamo)."""
    return character >= "\u0300" and len(unicodedata.normalize("NFC", base + character)) == 1


@lru_cache(maxsize=8192)
def _plain(character: str) -> str:
    """The character as the rules expect it; empty if it is skipped."""
    if character in "\n\v\f\x85\u2028\u2029":
        return "\n"
    if character.isspace():
        return " "
    category = unicodedata.category(character)
    if category in ("Cc", "Cf", "Cs") or _is_variation(character):
        return ""
    if category[0] in "LN":
        return _plain_letter(character)
    if category[0] in "CS":
        return _plain_symbol(character, category)
    return character


def _is_variation(character: str) -> bool:
    return (
        "\ufe00" <= character <= "\ufe0f"
        or "\U000e0100" <= character <= "\U000e01ef"
        or character == "\u20e3"  # combining enclosing keycap, after a digit
    )


def _plain_letter(character: str) -> str:
    form = unicodedata.decomposition(character).partition(" ")[0]
    plain = unicodedata.normalize("NFKC", character)
    if form in ("<wide>", "<narrow>", "<font>") or (form == "<compat>" and plain.isascii()):
        return plain
    return character


def _plain_symbol(character: str, category: str) -> str:
    if "\u2190" <= character <= "\u21ff" or "\u2794" <= character <= "\u27be":
        return _COMMA
    if category in ("Sc", "Sm") and not "\u25a0" <= character <= "\u27bf":
        return character
    if category == "Sk" and character < "\U0001f000":
        return character
    return character if _is_read_aloud(character) else _GAP


def _is_read_aloud(character: str) -> bool:
    """Whether a symbol is read as a word: the degree sign, and those with letters (℃, ™, №)."""
    if character >= "\U0001f000":
        return False
    plain = unicodedata.normalize("NFKC", character)
    return character in "°©®" or any(part.isalnum() for part in plain)


def _joined(draft: Speakable) -> Speakable:
    """Turn runs of white space, gaps and pauses into spoken separators."""
    spoken: list[str] = []
    offsets: list[int] = []
    waiting: dict[str, int] = {}  # separators since the last spoken character
    for character, offset in zip(draft.spoken, draft.offsets, strict=True):
        if character in _SEPARATORS:
            waiting.setdefault(" " if character == "\n" else character, offset)
            continue
        if waiting:
            for separator, place in _separation(spoken, waiting, character):
                spoken.append(separator)
                offsets.append(place)
            waiting.clear()
        spoken.append(character)
        offsets.append(offset)
    return Speakable("".join(spoken), tuple(offsets))


_SEPARATORS = frozenset((" ", "\n", _GAP, _COMMA, _STOP))
_PUNCTUATION = SENTENCE_ENDS | CLAUSE_ENDS | frozenset("､")


def _separation(
    spoken: list[str], waiting: dict[str, int], following: str
) -> list[tuple[str, int]]:
    """Spoken separators, with offsets, between the last character and the `following` one."""
    if not spoken:
        return []
    place = min(waiting.values())
    is_wide = unicodedata.east_asian_width(spoken[-1]) in "WF"
    if (_STOP in waiting or _COMMA in waiting) and not _is_punctuated(spoken):
        if following in _PUNCTUATION:
            return []
        if is_wide:
            return [("。" if _STOP in waiting else "，", place)]
        return [("." if _STOP in waiting else ",", place), (" ", place)]
    if _GAP in waiting and following in _PUNCTUATION:
        return []
    return [(" ", place)]


def _is_punctuated(spoken: list[str]) -> bool:
    """Whether the text so far ends with punctuation, perhaps with closing quotes after it."""
    for character in reversed(spoken[-4:]):
        if character in _PUNCTUATION:
            return True
        if unicodedata.category(character) not in ("Pe", "Pf", "Pi", "Po"):
            return False
    return False
