"""Reads what a folder of recordings, or a manifest, says about its clips. Decodes no audio.

A folder has audio files, each beside a text file of the same name: `001.wav` and `001.txt`. A
manifest has one JSON object per line with `audio` (a path, relative to the manifest), `text`, and
optionally `language`; keys of other tools, such as `ref_audio`, are ignored.
"""

import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.reading import read_file

AUDIO_SUFFIXES = (".wav", ".flac", ".mp3", ".ogg", ".opus")
MAX_TEXT_CHARS = 1_000
"""A clip of 30 s holds about 600 characters."""
_MAX_BYTES = 2**28  # of a manifest: a million clips


class Problem(StrEnum):
    """Stable names of what is wrong with a clip."""

    INVALID_LINE = "invalid_line"
    MISSING_AUDIO = "missing_audio"
    MISSING_TEXT = "missing_text"
    EMPTY_TEXT = "empty_text"
    INVALID_TEXT = "invalid_text"
    UNREADABLE = "unreadable"
    WRONG_RATE = "wrong_rate"
    TOO_SHORT = "too_short"
    TOO_LONG = "too_long"
    SILENT = "silent"
    CLIPPED = "clipped"
    DUPLICATE = "duplicate"
    MISMATCH = "mismatch"


@dataclass(frozen=True, slots=True)
class Rejection:
    """A clip that cannot be trained on.

    Attributes:
        name: file of the clip, or line of the manifest.
        problem: stable name of the reason.
        detail: what was expected and what was found; never the text itself.
    """

    name: str
    problem: Problem
    detail: str


@dataclass(frozen=True, slots=True)
class Clip:
    """One recording and its transcript.

    Attributes:
        name: path of the recording as the user wrote it.
        path: path of the recording.
        text: transcript without surrounding white space.
        language: name or code of the language; None lets the model decide.
    """

    name: str
    path: Path
    text: str
    language: str | None = None


def read_clips(source: Path) -> tuple[list[Clip], list[Rejection]]:
    """Read the clips of a folder or of a manifest, in a stable order.

    Args:
        source: folder of audio and text files, or a `.jsonl` file.

    Returns:
        Clips with a usable text, and the others with the reason.

    Raises:
        InvalidRequestError: there is no such folder or manifest, or it names no clips.
    """
    if source.is_dir():
        found = [_clip_of_file(path, source) for path in _audio_files(source)]
        found += _texts_alone(source)
    elif source.is_file():
        found = [
            _clip_of_line(line, number, source)
            for number, line in enumerate(_lines(source), start=1)
            if line.strip()
        ]
    else:
        raise InvalidRequestError(
            f"{source}: expected a folder of recordings or a manifest; found neither"
        )
    if not found:
        raise InvalidRequestError(
            f"{source}: expected audio files ({', '.join(AUDIO_SUFFIXES)}) with .txt files beside "
            "them, or a manifest with one JSON object per line; found no clips"
        )
    clips = [each for each in found if isinstance(each, Clip)]
    return clips, [each for each in found if isinstance(each, Rejection)]


def _audio_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in AUDIO_SUFFIXES)


def _texts_alone(folder: Path) -> list[Clip | Rejection]:
    """Return a rejection for every transcript whose recording is not there."""
    recorded = {path.with_suffix("") for path in _audio_files(folder)}
    return [
        Rejection(
            str(path.relative_to(folder)), Problem.MISSING_AUDIO, "expected a recording beside it"
        )
        for path in sorted(folder.rglob("*.txt"))
        if path.with_suffix("") not in recorded
    ]


def _clip_of_file(path: Path, folder: Path) -> Clip | Rejection:
    name = str(path.relative_to(folder))
    transcript = path.with_suffix(".txt")
    if not transcript.exists():
        return Rejection(name, Problem.MISSING_TEXT, f"expected a transcript, {transcript.name}")
    try:
        text = read_file(transcript, _MAX_BYTES).decode("utf-8-sig")
    except InvalidRequestError as error:
        return Rejection(name, Problem.INVALID_TEXT, error.message)
    except UnicodeDecodeError as error:
        detail = f"{transcript.name}: expected text in UTF-8; {type(error).__name__}"
        return Rejection(name, Problem.INVALID_TEXT, detail)
    return _checked(name, path, text, None)


def _lines(manifest: Path) -> list[str]:
    try:
        return read_file(manifest, _MAX_BYTES).decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"{manifest}: expected JSON lines in UTF-8; {error}") from error


def _clip_of_line(line: str, number: int, manifest: Path) -> Clip | Rejection:
    place = f"line {number}"
    try:
        entry: Any = json.loads(line)
    except (ValueError, RecursionError):
        return Rejection(place, Problem.INVALID_LINE, "expected one JSON object per line")
    if not isinstance(entry, dict) or not isinstance(entry.get("audio"), str):
        detail = "expected an object with `audio`, the path of a recording"
        return Rejection(place, Problem.INVALID_LINE, detail)
    name, text, language = entry["audio"], entry.get("text"), entry.get("language")
    if text is None:
        return Rejection(name, Problem.MISSING_TEXT, f"{place}: expected `text`, the transcript")
    if not isinstance(text, str) or not isinstance(language, str | None):
        detail = f"{place}: expected `text`, and `language` if given, to be strings"
        return Rejection(name, Problem.INVALID_LINE, detail)
    return _checked(name, manifest.parent / name, text, language)


def _checked(name: str, path: Path, text: str, language: str | None) -> Clip | Rejection:
    text = text.strip()
    if not any(character.isalnum() for character in text):
        return Rejection(name, Problem.EMPTY_TEXT, "expected words in the transcript, found none")
    if len(text) > MAX_TEXT_CHARS:
        detail = f"expected at most {MAX_TEXT_CHARS} characters, got {len(text)}"
        return Rejection(name, Problem.INVALID_TEXT, detail)
    if not text.replace("\n", " ").replace("\t", " ").isprintable():
        return Rejection(name, Problem.INVALID_TEXT, "expected text without control characters")
    if not _is_path(path):
        return Rejection(name, Problem.MISSING_AUDIO, "expected a file, found none")
    return Clip(name, path, text, language)


def _is_path(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that is too long, or has NUL in it
        return False
