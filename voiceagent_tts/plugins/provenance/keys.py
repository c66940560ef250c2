"""Keys of the watermark: read from a file, which is created at the first start.

The first key of a file marks audio; all of them are looked for in audio. So a new key goes to the
top of the file, and audio with the old mark is still found. Knows no audio.
"""

import hashlib
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.settings.plugins import ProvenanceSettings

KEY_BYTES = 32
_HEX_KEY = re.compile(rf"[0-9a-fA-F]{{{2 * KEY_BYTES}}}")
_ID_PURPOSE = b"voiceagent-tts watermark key id"


@dataclass(frozen=True, slots=True)
class WatermarkKey:
    """A secret that selects one watermark."""

    secret: bytes

    @property
    def id(self) -> str:
        """Public name of the key: 16 hex digits, from which the key cannot be computed."""
        return hashlib.sha256(_ID_PURPOSE + self.secret).hexdigest()[:16]

    def __repr__(self) -> str:
        return f"WatermarkKey(id={self.id!r})"


def watermark_keys(settings: ProvenanceSettings) -> tuple[WatermarkKey, ...]:
    """Return the keys of a server; the first one marks.

    They are in `watermark_key_file`, which is created with one random key if it does not exist.

    Raises:
        InvalidRequestError: a key is malformed, or the file cannot be read or created.
    """
    path = settings.watermark_key_file.expanduser()
    try:
        _create_file(path)
        lines = path.read_text("ascii").split()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not ASCII text"
        raise InvalidRequestError(
            f"watermark_key_file: {path} cannot be used ({reason}); name another one, or switch "
            "marking off with --no-watermark"
        ) from error
    place = f"watermark_key_file {path}"
    if not lines:
        raise _malformed(place, "an empty file")
    return tuple(_parse(line, place) for line in lines)


def _create_file(path: Path) -> None:
    """Create the file with one key; a file that exists, also by a race, is left as it is."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(KEY_BYTES) + "\n")
            file.flush()
            os.fsync(file.fileno())
        # Unlike a rename, a link never replaces the key that another server has just written.
        os.link(unfinished, path)
    except FileExistsError:
        pass
    finally:
        unfinished.unlink(missing_ok=True)


def _parse(text: str, place: str) -> WatermarkKey:
    if not _HEX_KEY.fullmatch(text):
        raise _malformed(place, f"{len(text)} characters")
    return WatermarkKey(bytes.fromhex(text))


def _malformed(place: str, got: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{place}: expected keys of {2 * KEY_BYTES} hex digits, one per line, got {got}; make one "
        "with `openssl rand -hex 32`",
        code=ErrorCode.INVALID_PARAM,
    )
