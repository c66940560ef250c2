"""Write a file as a whole or not at all."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from voiceagent_tts.errors import ErrorCode, InvalidRequestError


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path; rename it to `path` when the block succeeds, else delete it.

    A link keeps leading to its file. A device or a pipe is never replaced: `path` itself is given.

    Raises:
        InvalidRequestError: the file cannot be written.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        yield path
        return
    unfinished = path.with_name(f".{path.stem}.unfinished{path.suffix}")
    try:
        try:
            yield unfinished
            with unfinished.open("rb") as file:
                os.fsync(file.fileno())
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise InvalidRequestError(
            f"{path}: cannot be written; {error.strerror}", code=ErrorCode.INVALID_PARAM
        ) from error
