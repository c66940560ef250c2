"""Standard streams that always exist; what a log cannot write is lost and stops nothing."""

import io
import os
import sys
from typing import Any, TextIO


class _Unfailing(io.FileIO):
    """A file that drops what cannot be written: its disk is full, or its reader has left."""

    def write(self, data: Any) -> int:
        """Write what can be written."""
        try:
            return super().write(data) or len(data)  # None: it would have to wait
        except OSError:
            return len(data)


def unfailing(descriptor: int) -> TextIO:
    """Return a text stream to an open file, which drops what it cannot write."""
    file = io.BufferedWriter(_Unfailing(descriptor, "w", closefd=False))
    return io.TextIOWrapper(file, "utf-8", errors="backslashreplace", line_buffering=True)


def secure_standard_streams() -> None:
    """Replace an output that the shell has closed, and let no write to standard error fail.

    Python has None for a closed one, and its number would be that of the next file to be opened. A
    stream that the caller of `main` has put in the place of standard error stays.
    """
    for descriptor, stream in ((1, sys.stdout), (2, sys.stderr)):
        if stream is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
            os.set_inheritable(descriptor, True)
    sys.stdout = sys.stdout or unfailing(1)
    if sys.stderr is sys.__stderr__:
        sys.stderr = unfailing(2)
