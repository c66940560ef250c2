"""HTML entities: the characters that a text names instead of having them, as in `&euro;`.

An entity becomes its characters and fillers that no voice speaks, so that the text keeps its length
and every offset remains one of the client's text.
"""

import html
import re

_ENTITY = r"&(?:#\d{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});"
_ENTITIES = re.compile(_ENTITY)
_LAST_ENTITY = re.compile(rf"{_ENTITY}\Z")
_BEGUN = re.compile(r"&(?:#(?:\d{0,7}|[xX][0-9A-Fa-f]{0,6})|[A-Za-z][A-Za-z0-9]{0,31}|)\Z")
_MAX_CHARS = 34
_FILLER = "\u2060"  # word joiner


def named(text: str) -> str:
    """Return a text of the same length with the characters that its entities name."""
    return _ENTITIES.sub(_characters, text)


def _characters(entity: re.Match[str]) -> str:
    characters = html.unescape(entity[0])
    return characters.ljust(len(entity[0]), " " if characters.isspace() else _FILLER)


def begun_at(text: str) -> int:
    """Return where an entity begins that later text may complete, else the end of the text."""
    begun = _BEGUN.search(text, max(0, len(text) - _MAX_CHARS))
    return len(text) if begun is None else begun.start()


def last_character(text: str) -> str:
    """Return the last character, or the one that an entity at the end names; "" without any."""
    entity = _LAST_ENTITY.search(text, max(0, len(text) - _MAX_CHARS))
    return text[-1:] if entity is None else html.unescape(entity[0])[-1]
