"""Write a file as a whole or not at all."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from voiceagent_tts.errors import ErrorCode, InvalidRequestError


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path; rename it to `path` when the block succeeds, else delete it.

    A link keeps leading to its file. A device or a pipe is never replaced: it is given itself.

    Raises:
        InvalidRequestError: the file cannot be written.
    """
    target = Path(os.path.realpath(path))
    unfinished = target.with_name(f".{target.stem}.unfinished{target.suffix}")
    try:
        if target.exists() and not target.is_file() and not target.is_dir():
            yield target
            return
        try:
            yield unfinished
            with unfinished.open("rb") as file:
                os.fsync(file.fileno())
            unfinished.replace(target)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise InvalidRequestError(
            f"{path}: cannot be written; {error.strerror}", code=ErrorCode.INVALID_PARAM
        ) from error
