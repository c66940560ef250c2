"""What is spoken: committed texts, lines of a file, or the texts of recordings in a folder."""

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.bench.texts import MAX_FILE_BYTES, Text, choose_texts, texts_in
from voiceagent_tts.reading import read_file

PLAIN_KINDS = ("short", "menu", "blurb", "paragraph")
"""Kinds whose words a recogniser writes as the text does."""
AUDIO_SUFFIXES = (".wav", ".flac", ".mp3", ".ogg")
AGENT = "agent"
"""Name of the set of sixty sentences of an English agent, in six kinds."""


@dataclass(frozen=True, slots=True)
class Item:
    """A text to be spoken, and what is known about it.

    Attributes:
        name: its name in reports, and the stem of its recording's file.
        text: the text.
        language: its language code.
    """

    name: str
    text: str
    language: str = "en"


def items_of(source: str, languages: Sequence[str], kinds: Sequence[str]) -> list[Item]:
    """The items of a set.

    Args:
        source: `texts` or `agent` for a committed set, or a file with one text in each line.
        languages: languages of `texts`; the first is that of a file.
        kinds: kinds of the committed set. Default: all, of `texts` all but numbers and code-mixed.

    Raises:
        InvalidRequestError: a language or kind is unknown, or the file cannot be read or has no
            such content.
    """
    if source == "texts":
        texts = choose_texts(languages, kinds or PLAIN_KINDS)
    elif source == AGENT:
        texts = _agent_texts(kinds)
    else:
        texts = texts_in(Path(source), languages[0] if languages else "en")
    return [
        Item(f"{text.language}-{text.kind}-{place:03}", text.text, text.language)
        for place, text in enumerate(texts)
    ]


def recordings_in(folder: Path, items: Iterable[Item], language: str) -> list[tuple[Item, Path]]:
    """The recordings of items, by their names; or, of a folder with `NAME.txt` files, all of them.

    Raises:
        InvalidRequestError: there is none.
    """
    files = {path.stem: path for path in sorted(folder.glob("*")) if path.suffix in AUDIO_SUFFIXES}
    texts = {name: path.with_suffix(".txt") for name, path in files.items()}
    written = [
        (Item(name, read_file(text, MAX_FILE_BYTES).decode().strip(), language), files[name])
        for name, text in texts.items()
        if text.exists()
    ]
    found = written or [(item, files[item.name]) for item in items if item.name in files]
    if not found:
        raise _invalid(
            f"recordings in {folder} named as items of the set, or each with its text in NAME.txt",
            f"{len(files)} others",
        )
    return found


def _agent_texts(kinds: Sequence[str]) -> list[Text]:
    """The sentences of an agent; errors as for `items_of`."""
    data = tomllib.loads(Path(__file__).with_name("agent.toml").read_text("utf-8"))
    if unknown := set(kinds) - set(data):
        raise _invalid(f"kinds of {', '.join(data)}", ", ".join(sorted(unknown)))
    return [Text("en", kind, text) for kind in kinds or data for text in data[kind]]


def _invalid(expected: str, got: str) -> InvalidRequestError:
    return InvalidRequestError(f"expected {expected}; got {got}")
