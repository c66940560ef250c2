"""Writes the files of a folder of clones, which servers and engines only read.

What cannot be written is an `InvalidRequestError` (`storage_unavailable`).
"""

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from voiceagent_tts.clones import VoiceFolder
from voiceagent_tts.errors import ErrorCode, InvalidRequestError

_UNFINISHED_SUFFIX = ".part"


def write_file(path: Path, content: bytes) -> None:
    """Store a file, or replace it."""
    temporary = path.with_name(f".{secrets.token_hex(8)}{_UNFINISHED_SUFFIX}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())  # some file systems report a full disk only here
        temporary.replace(path)
    except OSError as error:
        raise _not_writable(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_record(path: Path, record: BaseModel) -> None:
    """Store a record, or replace it."""
    write_file(path, record.model_dump_json().encode())


def delete_file(path: Path) -> bool:
    """Delete a file; returns whether there was one."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise InvalidRequestError(
            f"{path.parent}: cannot remove {path.name}: {error.strerror}",
            code=ErrorCode.STORAGE_UNAVAILABLE,
        ) from error
    return True


@contextlib.contextmanager
def changing(clones: VoiceFolder) -> Iterator[None]:
    """Let no other server of the voices and no other thread change several files meanwhile."""
    path = clones.path / ".lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("wb")
    except OSError as error:
        raise _not_writable(path, error) from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)  # ends with the file
        yield


def _not_writable(path: Path, error: OSError) -> InvalidRequestError:
    return InvalidRequestError(
        f"{path.parent}: cannot save {path.name}: {error.strerror}; set "
        "VOICEAGENT_TTS_VOICES_FOLDER to a writable folder with free space",
        code=ErrorCode.STORAGE_UNAVAILABLE,
    )
