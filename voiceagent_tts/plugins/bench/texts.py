"""The texts of benchmarks: a set in ten languages and six kinds, or the lines of a file.

The set was written for this project, under its licence; `texts.toml` holds it.
"""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.reading import read_file

LANGUAGES = ("zh", "en", "ja", "ko", "de", "fr", "ru", "pt", "es", "it")
"""The languages of Qwen3-TTS."""
KINDS = ("short", "menu", "blurb", "paragraph", "code-mixed", "numbers")
FROM_FILE = "file"
MAX_FILE_BYTES = 2**24
"""Maximum size of a file of texts."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text to be spoken, its language code and its kind."""

    language: str
    kind: str
    text: str


def choose_texts(languages: Iterable[str], kinds: Iterable[str]) -> list[Text]:
    """The texts of these languages and kinds; all where there are no names.

    Raises:
        InvalidRequestError: a name is unknown.
    """
    wanted = {"language": set(languages), "kind": set(kinds)}
    for name, known in (("language", LANGUAGES), ("kind", KINDS)):
        if unknown := wanted[name] - set(known):
            raise InvalidRequestError(
                f"{name}: expected some of {', '.join(known)}; got {', '.join(sorted(unknown))}"
            )
    data = tomllib.loads(Path(__file__).with_name("texts.toml").read_text("utf-8"))
    return [
        Text(language, kind, text)
        for language, of_kinds in data.items()
        for kind, texts in of_kinds.items()
        for text in texts
        if language in (wanted["language"] or LANGUAGES) and kind in (wanted["kind"] or KINDS)
    ]


def texts_in(path: Path, language: str) -> list[Text]:
    """One text for each line of a file that is not blank.

    Raises:
        InvalidRequestError: it cannot be read, is not UTF-8, or has no text.
    """
    try:
        lines = read_file(path, MAX_FILE_BYTES).decode().splitlines()
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"expected {path} in UTF-8: {error.reason}") from None
    texts = [Text(language, FROM_FILE, line.strip()) for line in lines if line.strip()]
    if not texts:
        raise InvalidRequestError(f"expected one text on each line of {path}, got none")
    return texts
