"""Voice name → Voice: which worker speaks it; and the folder in which cloned voices are kept.

Knows the names that the running workers offer, and files by their names. Does not know how a voice
is made, and of what is in its file no more than for which size of model it was made.
"""

import json
import os
import re
import secrets
import struct
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.seam.events import Capabilities

CLONE_SUFFIX = ".safetensors"
_NAME = re.compile(r"\w(?:[\w .-]{0,62}\w)?")
_NAMES_IN_A_MESSAGE = 40
_MAX_HEADER_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Voice:
    """A voice that a user can choose, and the worker that speaks it."""

    name: str
    worker: str


def clone_name(name: str) -> str:
    """The name as cloned voices carry it: in lower case, and never a path.

    Raises:
        InvalidRequestError: with code `invalid_voice`, for what could not name a file anywhere.
    """
    normal = unicodedata.normalize("NFC", name).casefold()
    if not _NAME.fullmatch(normal):
        raise InvalidRequestError(
            "expected a voice's name of at most 64 letters, digits, spaces, '.', '-' and '_', "
            f"with a letter or digit at both ends; got {name[:64]!r}",
            code=ErrorCode.INVALID_VOICE,
        )
    return normal


def _is_clone_name(name: str) -> bool:
    try:
        return clone_name(name) == name
    except InvalidRequestError:
        return False


class VoiceFolder:
    """Cloned voices, one file each, for every process that can read the folder.

    A voice is replaced whole: whoever reads gets the old file or the new one.

    Args:
        path: of the folder, which is made when the first voice is kept.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self) -> list[str]:
        """The voices that are there now, sorted."""
        stems = (file.stem for file in self.path.glob(f"*{CLONE_SUFFIX}"))
        return sorted(stem for stem in stems if _is_clone_name(stem))

    def __contains__(self, name: str) -> bool:
        try:
            return _is_clone_name(name.casefold()) and self._file(name).is_file()
        except OSError:  # too many bytes for a file's name, or a folder that cannot be searched
            return False

    def version(self, name: str) -> tuple[int, ...]:
        """What changes whenever the voice is replaced.

        Raises:
            InvalidRequestError: there is no such voice; the message lists those that there are.
        """
        try:
            status = self._file(name).stat()
        except OSError as error:
            raise self._unknown(name) from error
        return status.st_mtime_ns, status.st_ino, status.st_size

    def read(self, name: str) -> bytes:
        """The voice's file.

        Raises:
            InvalidRequestError: there is no such voice; the message lists those that there are.
        """
        try:
            return self._file(name).read_bytes()
        except OSError as error:
            raise self._unknown(name) from error

    def embedding_width(self, name: str) -> int | None:
        """Numbers in the voice's speaker embedding; None where its file does not say.

        Source: the safetensors format, a JSON header behind its length.
        """
        try:
            with self._file(name).open("rb") as file:
                (length,) = struct.unpack("<Q", file.read(8))
                header = json.loads(file.read(min(length, _MAX_HEADER_BYTES)))
            (width,) = header["speaker_embedding"]["shape"]
        except (OSError, struct.error, ValueError, KeyError, TypeError):
            return None
        return width if isinstance(width, int) else None

    def put(self, name: str, prompt: bytes) -> str:
        """Keep a voice, in place of the one that has its name.

        Returns:
            The name that it can be called by.

        Raises:
            InvalidRequestError: the name is none, or the folder cannot be written to; nothing has
                changed then.
        """
        target = self._file(name)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._replace(target, prompt)
        except OSError as error:
            raise InvalidRequestError(
                f"{self.path}: cannot keep the voice {target.stem!r}: {error.strerror}; set "
                "VOICEAGENT_TTS_VOICES_FOLDER to a folder with room that can be written to"
            ) from error
        return target.stem

    def _replace(self, target: Path, prompt: bytes) -> None:
        temporary = self.path / f".{target.stem}.{secrets.token_hex(8)}.part"
        try:
            with temporary.open("xb") as file:
                file.write(prompt)
                file.flush()
                os.fsync(file.fileno())  # a full disk may say so only here
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def remove(self, name: str) -> None:
        """Forget a voice; contexts that speak with it go on.

        Raises:
            InvalidRequestError: there is no such voice, or the folder cannot be written to.
        """
        try:
            self._file(name).unlink()
        except FileNotFoundError as error:
            raise self._unknown(name) from error
        except OSError as error:
            raise InvalidRequestError(
                f"{self.path}: cannot remove the voice {name!r}: {error.strerror}"
            ) from error

    def _file(self, name: str) -> Path:
        return self.path / f"{clone_name(name)}{CLONE_SUFFIX}"

    def _unknown(self, name: str) -> InvalidRequestError:
        known = _listed(self.names()) or "none yet: `voiceagent-tts voices add NAME ref.wav`"
        return InvalidRequestError(
            f"there is no cloned voice {name[:64]!r}; there are: {known}",
            code=ErrorCode.INVALID_VOICE,
        )


class VoiceBook:
    """The voices of all workers; where two offer a name, the worker named first speaks it.

    Args:
        workers: what each of them can do.
        clones: the voices that workers with a `clone_width` speak, which come and go meanwhile.
    """

    def __init__(
        self, workers: Mapping[str, Capabilities], clones: VoiceFolder | None = None
    ) -> None:
        self._voices: dict[str, Voice] = {}
        self._clone_workers: dict[int, str] = {}
        for worker, capabilities in workers.items():
            for name in capabilities.voices:
                self._voices.setdefault(name.casefold(), Voice(name, worker))
            if capabilities.clone_width is not None:
                self._clone_workers.setdefault(capabilities.clone_width, worker)
        self._clones = clones if self._clone_workers else None

    def names(self) -> list[str]:
        """Every name, the default first."""
        fixed = [voice.name for voice in self._voices.values()]
        if self._clones is None:
            return fixed
        return fixed + [name for name in self._clones.names() if name not in self._voices]

    def resolve(self, name: str | None) -> Voice:
        """The voice called `name`, in any case; the first one where it is None.

        `base+variant` (espeak's own notation) is a voice where both halves are.

        Raises:
            InvalidRequestError: with code `invalid_voice` and the names that exist.
        """
        if name is None:
            return self._default()
        base, plus, variant = name.casefold().partition("+")
        known = self._voices.get(base)
        if known is None and self._clones is not None and name in self._clones:
            return self._clone(self._clones, clone_name(name))
        if known is None or (plus and variant not in self._voices):
            raise InvalidRequestError(
                f"expected the name of a voice, got {name[:64]!r}; known are "
                f"{_listed(self.names()) or _NO_VOICE}",
                code=ErrorCode.INVALID_VOICE,
            )
        return Voice(name, known.worker) if plus else known

    def _clone(self, clones: VoiceFolder, name: str) -> Voice:
        """A clone goes to the model of its size; the first one says where there is none."""
        first, *others = self._clone_workers.values()
        width = clones.embedding_width(name) if others else None
        return Voice(name, first if width is None else self._clone_workers.get(width, first))

    def _default(self) -> Voice:
        for name in self.names():
            return self.resolve(name)
        raise InvalidRequestError(f"there is {_NO_VOICE}", code=ErrorCode.INVALID_VOICE)


_NO_VOICE = "no voice yet: `voiceagent-tts voices add NAME ref.wav` clones one"


def _listed(names: list[str]) -> str:
    """Names for a message, which is not to be longer than a screen."""
    left = len(names) - _NAMES_IN_A_MESSAGE
    more = f" and {left} more" * (left > 0)
    return f"{', '.join(names[:_NAMES_IN_A_MESSAGE])}{more}"
