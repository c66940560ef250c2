"""Punctuation marks that end a sentence or a clause or may follow one, and HTML entities.

The one definition of these sets in the project. A wide mark (Chinese, Japanese) ends the
text before it without white space after it. An entity, such as `&euro;`, becomes its characters and
fillers that no voice speaks, so that the text keeps its length and every offset remains one of the
client's text.
"""

import html
import re

WIDE_SENTENCE_ENDS = frozenset("。！？｡")
SENTENCE_ENDS = WIDE_SENTENCE_ENDS | frozenset(".!?…؟۔।")

DASHES = frozenset("—–")
WIDE_CLAUSE_ENDS = frozenset("，、；：")
CLAUSE_ENDS = WIDE_CLAUSE_ENDS | DASHES | frozenset(",;:…،؛")
"""Marks that end a clause inside a sentence; an ellipsis ends a clause or a sentence."""

CLOSING = "\"'”’»)]」』）】》〉"
"""Quotes and brackets that close the text before them."""

_SPOKEN_PAUSES = (SENTENCE_ENDS | CLAUSE_ENDS) - DASHES
"""Marks at which a voice pauses; a dash may also join two words or numbers."""


def last_mark(text: str) -> str:
    """The last character of `text` before its closing quotes and brackets; "" if there is none."""
    return text.rstrip(CLOSING)[-1:]


def ends_clause(text: str) -> bool:
    """Whether a voice pauses at the end of `text`: it ends with a mark, perhaps closed."""
    return last_mark(text.rstrip()) in _SPOKEN_PAUSES


_ENTITY = r"&(?:#\d{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});"
_ENTITIES = re.compile(_ENTITY)
_LAST_ENTITY = re.compile(rf"{_ENTITY}\Z")
_BEGUN = re.compile(r"&(?:#(?:\d{0,7}|[xX][0-9A-Fa-f]{0,6})|[A-Za-z][A-Za-z0-9]{0,31}|)\Z")
_MAX_ENTITY_CHARS = 34
_FILLER = "\u2060"  # word joiner


def name_entities(text: str) -> str:
    """Return a text of the same length with the characters that its entities name."""
    return _ENTITIES.sub(_characters, text)


def _characters(entity: re.Match[str]) -> str:
    characters = html.unescape(entity[0])
    return characters.ljust(len(entity[0]), " " if characters.isspace() else _FILLER)


def begun_entity_at(text: str) -> int:
    """Return where an entity begins that later text may complete, else the end of the text."""
    begun = _BEGUN.search(text, max(0, len(text) - _MAX_ENTITY_CHARS))
    return len(text) if begun is None else begun.start()


def last_character(text: str) -> str:
    """Return the last character, or the one that an entity at the end names; "" without any."""
    entity = _LAST_ENTITY.search(text, max(0, len(text) - _MAX_ENTITY_CHARS))
    return text[-1:] if entity is None else html.unescape(entity[0])[-1]
