"""Writes to disk in the background: a slow or full disk never reaches a request."""

import contextlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from pathlib import Path

import structlog

from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.settings.group import refused

_MAX_WAITING = 10_000

_log = structlog.get_logger(__name__)


class DiskLog:
    """Runs writes one after the other in a thread. The log says once that writing fails.

    Args:
        name: the name in logs and metrics.
        on_failure: called with the name for every write that fails or is dropped; may run in the
            thread.
    """

    def __init__(self, name: str, on_failure: Callable[[str], None]) -> None:
        self._name = name
        self._on_failure = on_failure
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._room = threading.Semaphore(_MAX_WAITING)
        self._is_failing = False

    def submit(self, write: Callable[[], None]) -> None:
        """Run `write` later. Drops it if ten thousand others wait, or after `close`."""
        if not self._room.acquire(blocking=False):
            self._fail("the disk is too slow")
            return
        with contextlib.suppress(RuntimeError):  # closed: a context has ended after its server
            self._thread.submit(self._run, write)

    def _run(self, write: Callable[[], None]) -> None:
        self._room.release()
        try:
            write()
        except OSError as error:
            self._fail(error.strerror or type(error).__name__)
            return
        if self._is_failing:
            self._is_failing = False
            _log.info("log_written_again", log=self._name)

    def _fail(self, problem: str) -> None:
        self._on_failure(self._name)
        if not self._is_failing:
            self._is_failing = True
            _log.error("log_not_written", log=self._name, problem=problem)

    def close(self) -> None:
        """Finish the writes that wait, and end the thread."""
        self._thread.shutdown()


class LineFile:
    """A file to which lines are appended, opened anew when it was moved away or removed."""

    def __init__(self, path: Path) -> None:
        self._path = path.expanduser()

    def check(self, setting: str) -> None:
        """Make the file where it is missing; `setting` has its path.

        Raises:
            InvalidRequestError: the file cannot be written, or its folder is missing.
        """
        if not self._path.parent.is_dir():
            raise InvalidRequestError(
                f"{setting}: expected a file in a folder that exists, got {self._path}; make the "
                "folder, or name another one"
            )
        try:
            open_private(self._path).close()
        except OSError as error:
            raise InvalidRequestError(f"{setting}: {refused(self._path, error)}") from error

    def append(self, line: str) -> None:
        """Append one line; a line that does not fit on the disk leaves no part of it.

        Raises:
            OSError: the line cannot be written.
        """
        # Opened for each line: 20 us in a thread, and log rotation needs no signal.
        with open_private(self._path) as file:
            append_whole(file, f"{line}\n".encode())


def append_whole(file: FileIO, data: bytes) -> None:
    """Append `data` to an unbuffered file, all of it or nothing.

    Raises:
        OSError: `data` cannot be written.
    """
    end = os.fstat(file.fileno()).st_size
    try:
        written = file.write(data)
        while written < len(data):
            written += file.write(data[written:])
    except OSError:
        with contextlib.suppress(OSError):  # a device cannot be cut
            os.ftruncate(file.fileno(), end)
        raise


def open_private(path: Path) -> FileIO:
    """Open a file to append to, unbuffered; only its owner may read it.

    Raises:
        OSError: the file cannot be opened.
    """
    return open(path, "ab", buffering=0, opener=lambda name, flags: os.open(name, flags, 0o600))
