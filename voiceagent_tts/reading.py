"""Read a file as a whole, if it is one and is not too large."""

from pathlib import Path
from stat import S_ISDIR, S_ISREG

from voiceagent_tts.errors import ErrorCode, InvalidRequestError


def read_file(path: Path, max_bytes: int) -> bytes:
    """Return the content of a regular file.

    Pipes and devices are not opened: a pipe waits for its writer, and some devices never end.

    Raises:
        InvalidRequestError: the file cannot be read, is not a regular one, or has more bytes.
    """
    try:
        status = path.stat()
        if not S_ISREG(status.st_mode) and not S_ISDIR(status.st_mode):
            raise _refused(path, "expected a regular file, got a pipe or a device; name a file")
        with path.open("rb") as file:
            # The second check is for files that grow, or whose size the system does not state.
            content = b"" if status.st_size > max_bytes else file.read(max_bytes + 1)
    except OSError as error:
        raise _refused(path, f"cannot be read; {error.strerror}") from error
    if max(status.st_size, len(content)) > max_bytes:
        raise _refused(path, f"expected a file of at most {max_bytes} bytes, got a larger one")
    return content


def _refused(path: Path, reason: str) -> InvalidRequestError:
    return InvalidRequestError(f"{path}: {reason}", code=ErrorCode.INVALID_PARAM)
