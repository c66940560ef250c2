"""Writes files of libraries that report a full disk each in their own way."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.replacing import replacing


@contextmanager
def written(path: Path) -> Iterator[Path]:
    """Yield a temporary path for PyTorch, safetensors, NumPy or libsndfile to write to.

    The file is renamed to `path` when the block succeeds, else it is deleted.

    Raises:
        InvalidRequestError: the file cannot be written.
    """
    try:
        with replacing(path) as unfinished:
            yield unfinished
    except (RuntimeError, SafetensorError) as error:  # libsndfile's error is a RuntimeError
        reason = " ".join(str(error).split())[:200]
        raise InvalidRequestError(f"{path}: cannot be written; {reason}") from error
