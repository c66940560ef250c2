"""The voices of the package `hibari-tts`, and the places of their files.

Reads the package's own list without importing the package, which would load its network.
"""

import importlib.util
import json
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from voiceagent_tts.errors import CheckpointError
from voiceagent_tts.extras import install_hint
from voiceagent_tts.seam.events import Gender

DEFAULT_VOICE = "heart"
"""The voice that the package contains."""


@dataclass(frozen=True, slots=True)
class PublishedVoice:
    """A voice of the package.

    Attributes:
        language: `en-us` or `en-gb`.
        file: where its network is, or would be.
    """

    name: str
    language: str
    gender: Gender
    file: Path


def is_installed() -> bool:
    """Whether the package and what runs its network are installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("hibari", "onnxruntime"))


@cache
def assets() -> Path:
    """Folder of the package's data; raises `CheckpointError` if the package is not installed."""
    found = importlib.util.find_spec("hibari")
    if found is None or found.origin is None:
        raise CheckpointError(
            "engine hibari: the package 'hibari-tts' is missing; "
            f"{install_hint('server', 'espeak', 'hibari')}"
        )
    return Path(found.origin).parent / "assets"


def published_voices() -> dict[str, PublishedVoice]:
    """All voices by name, the one in the package first; raises as `assets`."""
    entries = json.loads((assets() / "voices.json").read_text("utf-8"))
    return {
        name: PublishedVoice(
            name,
            "en-gb" if entry["british"] else "en-us",
            entry["gender"],
            (assets() if entry.get("bundled") else _downloads()) / entry["file"],
        )
        for name, entry in entries.items()
    }


def stored_voices() -> list[PublishedVoice]:
    """The voices whose files are on this machine, the one in the package first."""
    return [voice for voice in published_voices().values() if voice.file.is_file()]


def is_known(name: str) -> bool:
    """Whether the installed package has a voice of this name."""
    return is_installed() and name in published_voices()


def fetch(name: str) -> Path:
    """Download a voice unless it is on this machine; return its file.

    The package downloads it, and checks it against the checksum that it contains.

    Raises:
        CheckpointError: there is no such voice, or it cannot be downloaded.
    """
    voice = published_voices().get(name)
    if voice is None:
        known = ", ".join(published_voices())
        raise CheckpointError(f"expected a voice of hibari, got {name[:64]!r}; known are {known}")
    if voice.file.is_file():
        return voice.file
    from hibari.voices import voice_path

    try:
        voice_path(name)
    except (RuntimeError, OSError) as error:
        raise CheckpointError(
            f"hibari {name}: not on this machine, and the download failed: {error}"
        ) from error
    return voice.file


def _downloads() -> Path:
    from hibari.voices import cache_dir

    return Path(os.fspath(cache_dir()))
