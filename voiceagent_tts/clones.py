"""The cloned voices in a folder: names of their files, and which of them a caller may know of.

The core loads it where an engine speaks clones, whose workers `CloneBook` finds. A voice file is
safetensors, whichever engine made it; of its contents only the header is read here, for the width
of the embedding. What cannot be found or named is an `InvalidRequestError`.
"""

import contextlib
import hashlib
import json
import os
import re
import struct
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from pathlib import Path
from typing import Any

from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.seam.events import Capabilities
from voiceagent_tts.voices import Voice, VoiceBook

CLONE_SUFFIX = ".safetensors"
_NAME = re.compile(r"\w(?:[\w .-]{0,62}\w)?")
_OWNER = re.compile(r"[0-9a-z-]{1,32}")
_PLAIN_KEY_ID = re.compile(r"[0-9a-z-]{1,31}")
_MAX_NAME_BYTES = 200
"""Only letters of rare scripts reach it; a file's name has at most 255 bytes with its suffix."""
_MAX_HEADER_BYTES = 65_536
_LISTED = "GET /v1/audio/voices and `voiceagent-tts voices list` show them"


def clone_name(name: str) -> str:
    """Normalise the name of a cloned voice: lower case, never a path.

    Raises:
        InvalidRequestError: with code `invalid_voice`, if the name is not a valid file name.
    """
    normal = unicodedata.normalize("NFC", name[:_MAX_NAME_BYTES]).casefold()
    is_long = len(name) > _MAX_NAME_BYTES
    if is_long or not _NAME.fullmatch(normal) or len(normal.encode()) > _MAX_NAME_BYTES:
        raise InvalidRequestError(
            "expected a voice's name of at most 64 letters, digits, spaces, '.', '-' and '_', "
            f"with a letter or digit at both ends; got {name[:64]!r}",
            code=ErrorCode.INVALID_VOICE,
        )
    return normal


def own_name(name: str, key_id: str) -> str:
    """Name of the file of a clone that belongs to a key: no other key's clone has it."""
    return f"{clone_name(name)}{_suffix_of(key_id)}"


def _suffix_of(key_id: str) -> str:
    # The ids that this program makes; others may be longer than a file's name, or differ in case.
    if _PLAIN_KEY_ID.fullmatch(key_id):
        return f"@{key_id}"
    return f"@{hashlib.sha256(key_id.encode()).hexdigest()[:32]}"


def may_belong_to(stored: str, key_id: str) -> bool:
    """Whether the clone in a file is a key's own or may be everyone's, by the name of the file."""
    return "@" not in stored or stored.endswith(_suffix_of(key_id))


def stored_name(name: str) -> str:
    """Normalise the name of a clone's file: `clone_name`, or `own_name`. Never a path."""
    base, _, owner = name.casefold().partition("@")
    return f"{clone_name(base)}@{owner}" if _OWNER.fullmatch(owner) else clone_name(name)


def _is_stored_name(name: str) -> bool:
    try:
        return stored_name(name) == name
    except InvalidRequestError:
        return False


class VoiceFolder:
    """Reads cloned voices, one file each, shared by all processes that can read the folder.

    A voice has the name of its file here, which `stored_name` normalises: keys may use one name
    for voices of their own (`SeenClones`).

    Other files about the voices may be stored beside them. Writers replace a file atomically:
    readers get the old one or the new one.

    Args:
        path: folder, created with the first voice.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: tuple[int, list[str]] = 0, []

    def known_names(self) -> list[str]:
        """As `names`; reads the folder only where it has changed since the last time."""
        with contextlib.suppress(OSError):
            changed_ns = self.path.stat().st_mtime_ns
            if self._known[0] != changed_ns:
                self._known = changed_ns, self.names()
            return self._known[1]
        return []

    def names(self) -> list[str]:
        """Return the names of the stored voices, sorted."""
        stems = (file.stem for file in self.path.glob(f"*{CLONE_SUFFIX}"))
        return sorted(stem for stem in stems if _is_stored_name(stem))

    def __contains__(self, name: str) -> bool:
        try:
            return _is_stored_name(name.casefold()) and self.file(name).is_file()
        except OSError:  # the name is too long, or the folder is not readable
            return False

    def version(self, name: str, expected: tuple[int, ...] = ()) -> tuple[int, ...]:
        """Return a value that changes whenever the voice is replaced.

        Args:
            name: the voice.
            expected: an earlier value, if the voice must be the same as then.

        Raises:
            InvalidRequestError: there is no such voice, or it is another one than expected. Any
                client may get the message, so it names no other voice.
        """
        try:
            status = self.file(name).stat()
        except OSError as error:
            raise unknown_clone(name, _LISTED) from error
        return _checked_version(name, status, expected)

    def read(self, name: str, expected: tuple[int, ...] = ()) -> bytes:
        """Read the file of a voice; arguments and errors as for `version`."""
        try:
            with self.file(name).open("rb") as file:
                _checked_version(name, os.fstat(file.fileno()), expected)
                return file.read()
        except OSError as error:
            raise unknown_clone(name, _LISTED) from error

    def embedding_width(self, name: str) -> int | None:
        """Return the size of the voice's speaker embedding; None if the file does not state it."""
        try:
            with self.file(name).open("rb") as file:
                header, _ = read_header(file.read(8 + _MAX_HEADER_BYTES))
            (width,) = header["speaker_embedding"]["shape"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return width if isinstance(width, int) else None

    def file(self, name: str) -> Path:
        """Path of the file of a voice, which may not exist."""
        return self.path / f"{stored_name(name)}{CLONE_SUFFIX}"


class SeenClones:
    """The clones of a folder that one caller may know of, under the names that it uses.

    Each key has names of its own: what it calls `anna` is its own clone, else that of everyone.

    Args:
        folder: all clones.
        key_id: the caller's key; None on a server without keys.
        is_seen: whether the caller may know of a clone, by the name of its file.
        of_id: finds the name of a clone's file by another id than its name.

    Attributes:
        hint: tells a caller where the names are listed.
    """

    hint = _LISTED

    def __init__(
        self,
        folder: VoiceFolder,
        key_id: str | None = None,
        is_seen: Callable[[str], bool] = lambda stored: True,
        of_id: Callable[[str], str | None] = lambda id_: None,
    ) -> None:
        self.folder = folder
        self._suffix = "" if key_id is None else _suffix_of(key_id)
        self._is_seen = is_seen
        self._of_id = of_id

    def names(self) -> list[str]:
        """The caller's names of the clones, sorted."""
        return sorted({self.shown(each) for each in self.folder.names() if self._is_seen(each)})

    def known_names(self) -> Iterator[str]:
        """As `names`, of the clones in `VoiceFolder.known_names`."""
        for each in sorted(self.folder.known_names(), key=self.shown):
            if self._is_seen(each):
                yield self.shown(each)

    def shown(self, stored: str) -> str:
        """The caller's name of the clone in a file."""
        return stored.removesuffix(self._suffix)

    def find(self, name: str) -> str | None:
        """The name of the file of a clone; None if the caller knows of none."""
        for each in (name + self._suffix, name) if self._suffix else (name,):
            if each in self.folder and self._is_seen(stored := stored_name(each)):
                return stored
        stored = self._of_id(name)
        return stored if stored is not None and self._is_seen(stored) else None

    def __contains__(self, name: str) -> bool:
        return self.find(name) is not None


class CloneBook(VoiceBook):
    """The voices of workers, some of which speak clones; the folder may change at any time.

    A clone comes before a built-in voice of the same name: it was stored with `--replace`.

    Args:
        clones_of: returns the clones that a caller may know of; all for None.
    """

    def __init__(
        self,
        workers: Mapping[str, Capabilities],
        clones_of: Callable[[str | None], SeenClones],
    ) -> None:
        super().__init__(workers)
        self._clones_of = clones_of
        self._clones = clones_of(None)
        self._clone_workers: dict[int, str] = {}  # by the width of their embeddings
        for worker, capabilities in workers.items():
            if capabilities.clone_width is not None:
                self._clone_workers.setdefault(capabilities.clone_width, worker)
        if not any(self._ready_names()):
            self.read_clones = self._clones.folder.known_names

    def seen_by(self, owner: str | None) -> VoiceBook:
        """The book of a caller, who may know of some clones only; None for all of them."""
        if owner is None:
            return self
        book = copy(self)
        book._clones = self._clones_of(owner)
        return book

    def __contains__(self, name: str) -> bool:
        """Whether a voice has this name, in any letter case; reads no names of other clones."""
        return super().__contains__(name) or name in self._clones

    def names(self) -> list[str]:
        """As `VoiceBook.names`, with the clones."""
        return list(self._ordered(self._clones.names()))

    def resolve(self, name: str | None) -> Voice:
        """As `VoiceBook.resolve`, with the clones."""
        stored = None if name is None else self._clones.find(name)
        return super().resolve(name) if stored is None else self._clone(stored)

    def _hint(self, name: str) -> str:
        """As `name_hint`, without reading the names of all clones for a mistake of a client."""
        hint = self._clones.hint
        return f"{super()._hint(name)}; {hint}" if self._voices else hint

    def _clone(self, stored: str) -> Voice:
        clones = self._clones
        version = clones.folder.version(stored)
        first, *others = self._clone_workers.values()
        width = clones.folder.embedding_width(stored) if others else None
        # The worker whose model has the size of the clone's.
        worker = first if width is None else self._clone_workers.get(width, first)
        return Voice(clones.shown(stored), worker, stored, version)

    def _first_name(self) -> str | None:
        return next(self._ordered(self._clones.known_names()), None)


def file_version(status: os.stat_result) -> tuple[int, ...]:
    """A value that changes whenever a file is replaced or written."""
    return status.st_mtime_ns, status.st_ino, status.st_size


def _checked_version(
    name: str, status: os.stat_result, expected: tuple[int, ...]
) -> tuple[int, ...]:
    version = file_version(status)
    if expected not in ((), version):
        raise InvalidRequestError(
            f"expected the voice {name.partition('@')[0]!r} that the context was opened with, got "
            "another one that has replaced it since; open a new context",
            code=ErrorCode.INVALID_VOICE,
        )
    return version


def unknown_clone(name: str, hint: str) -> InvalidRequestError:
    """Return the error for a name that no clone has."""
    return InvalidRequestError(
        f"expected the name of a cloned voice, got {name[:64]!r}; {hint}",
        code=ErrorCode.INVALID_VOICE,
    )


def read_header(voice_file: bytes) -> tuple[dict[str, Any], int]:
    """Return the header of a voice file, and the offset in bytes at which its tensors begin.

    Args:
        voice_file: the file, or a beginning of it that holds the header.

    Raises:
        ValueError: the header is missing or incomplete.

    Source: the safetensors format, a JSON header after its length, and then the tensors.
    """
    try:
        (length,) = struct.unpack("<Q", voice_file[:8])
        header = json.loads(voice_file[8 : 8 + length])
    except (struct.error, RecursionError) as error:  # cut, or thousands of brackets
        raise ValueError("expected the header of a voice file") from error
    if not isinstance(header, dict):
        raise ValueError("expected a voice file's header to be an object")
    return header, 8 + length
