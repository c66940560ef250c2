"""Pronunciations of written words: the entries of a lexicon, checked, from a client or from a file.

A lexicon maps a written form to how it is said: a respelling (`"nginx": "engine x"`), a
pronunciation in IPA between slashes (`"Siobhan": "/ʃɪˈvɔːn/"`), or both (`{"say": "shiv awn",
"ipa": "ʃɪˈvɔːn"}`). `text.entries` finds the places where an entry matches.
"""

import re
import tomllib
import unicodedata
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.reading import read_file

MAX_WRITTEN_CHARS = 100
MAX_SAID_CHARS = 200
MAX_CLIENT_ENTRIES = 500
"""Maximum number of entries of a context's own lexicon."""
MAX_FILE_ENTRIES = 20_000
"""Maximum number of entries of a file."""
_CONTROLS = frozenset(("Cc", "Cs", "Cn", "Co"))
_LETTER = re.compile(r"[^\W_]")
"""A letter or digit: `str.isalnum` without a step of Python for each character."""
_MAX_FILE_BYTES = 4_000_000


@dataclass(frozen=True, slots=True)
class Pronunciation:
    """How a written form is said; at least one of the two is given.

    Args:
        say: a respelling in the letters of the language.
        ipa: the International Phonetic Alphabet, without slashes.
    """

    say: str | None
    ipa: str | None


Entries = Mapping[str, Pronunciation]
"""Pronunciations by written form."""


def check_entries(given: object, max_entries: int = MAX_CLIENT_ENTRIES) -> dict[str, Pronunciation]:
    """Check the entries of a lexicon.

    Args:
        given: an object whose keys are written forms, as JSON or TOML has it.
        max_entries: maximum number of entries.

    Raises:
        InvalidRequestError: an entry is not as documented; `invalid_param`. The message names its
            position and never shows it.
    """
    if not isinstance(given, Mapping):
        raise _refusal("expected an object that maps written forms to pronunciations")
    entries = cast("Mapping[object, object]", given)
    if len(entries) > max_entries:
        raise _refusal(f"expected at most {max_entries} entries, got {len(entries)}")
    checked: dict[str, Pronunciation] = {}
    for number, (written, said) in enumerate(entries.items(), start=1):
        checked[_checked_text(written, MAX_WRITTEN_CHARS, number, "written form")] = _pronunciation(
            said, number
        )
    return checked


def _pronunciation(said: object, number: int) -> Pronunciation:
    if isinstance(said, str):
        text = _checked_text(said, MAX_SAID_CHARS, number, "pronunciation")
        if len(text) > 2 and text[0] == text[-1] == "/":
            return Pronunciation(None, _checked_text(text[1:-1], MAX_SAID_CHARS, number, "IPA"))
        return Pronunciation(text, None)
    fields = cast("Mapping[object, object]", said) if isinstance(said, Mapping) else None
    if not fields or not fields.keys() <= {"say", "ipa"}:
        raise _refusal(
            f"entry {number}: expected a respelling, IPA between slashes, or an object with `say`, "
            "`ipa` or both"
        )
    checked = {
        name: _checked_text(value, MAX_SAID_CHARS, number, f"`{name}`")
        for name, value in fields.items()
    }
    return Pronunciation(checked.get("say"), checked.get("ipa"))


def _checked_text(value: object, max_chars: int, number: int, part: str) -> str:
    """A text that has a letter or digit and no control characters, without space around it."""
    if not isinstance(value, str):
        raise _refusal(f"entry {number}: expected the {part} as a string")
    if len(value) > max_chars:
        raise _refusal(
            f"entry {number}: expected a {part} of at most {max_chars} characters, got {len(value)}"
        )
    if not value.isprintable() and not _CONTROLS.isdisjoint(map(unicodedata.category, set(value))):
        raise _refusal(f"entry {number}: expected a {part} without control characters")
    if not _LETTER.search(value):
        raise _refusal(f"entry {number}: expected a {part} with a letter or digit")
    return " ".join(value.split())


def _refusal(message: str) -> InvalidRequestError:
    return InvalidRequestError(f"lexicon: {message}", code=ErrorCode.INVALID_PARAM)


def as_json(entries: Entries) -> dict[str, Any]:
    """Entries in the form of the protocol."""
    return {
        written: {name: value for name, value in asdict(said).items() if value is not None}
        for written, said in entries.items()
    }


def read_lexicon(path: Path, max_entries: int = MAX_FILE_ENTRIES) -> dict[str, Pronunciation]:
    """Read a lexicon from a TOML file: `written = "said"`, one entry a line.

    Raises:
        InvalidRequestError: the file cannot be read, is not TOML, or has a wrong entry;
            `invalid_param`. The message names the file.
    """
    try:
        entries = tomllib.loads(read_file(path, _MAX_FILE_BYTES).decode())
    except InvalidRequestError as error:
        raise _refusal(error.message) from error
    except UnicodeDecodeError as error:
        raise _refusal(f"{path}: expected UTF-8 ({error.reason})") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise _refusal(f'{path}: expected TOML, one `written = "said"` a line ({error})') from error
    try:
        return check_entries(entries, max_entries)
    except InvalidRequestError as error:
        raise _refusal(f"{path}: {error.message.removeprefix('lexicon: ')}") from None
