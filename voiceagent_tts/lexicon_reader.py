"""Reads the lexicon of a voice in a process of its own.

A file of 20,000 entries takes 0.3 s of computing. In a thread of the server it would own Python's
lock for most of that time; on a busy machine, where the thread waits for a processor while it has
the lock, the event loop waits with it. The process does the work, and the server's thread receives
rows in small parts.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.lexicon import read_lexicon
from voiceagent_tts.text.entries import EntryMatcher, EntryRow, rows_of

_ROWS_AT_ONCE = 100
"""Rows of a line of the output: parsing it takes 0.1 ms, in which the event loop cannot run."""


def read_matcher(path: Path) -> EntryMatcher:
    """Read a lexicon; blocks until it is read.

    Raises:
        InvalidRequestError: the file has a mistake; the message names it.
    """
    argv = [sys.executable, "-m", "voiceagent_tts.lexicon_reader", str(path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        mistake = process.stdout.readline()
        matcher = EntryMatcher.of_rows(_rows(process.stdout))
    if process.returncode or not mistake:
        mistake = json.dumps(f"lexicon: {path}: its reader ended early").encode()
    if message := json.loads(mistake):
        raise InvalidRequestError(message, code=ErrorCode.INVALID_PARAM)
    return matcher


def _rows(lines: Iterator[bytes]) -> Iterator[EntryRow]:
    for line in lines:
        yield from cast("list[EntryRow]", json.loads(line))


def main() -> None:
    """Write the mistake in the file, or an empty string and the rows, as lines of JSON."""
    rows, mistake = list[EntryRow](), ""
    try:
        rows = rows_of(read_lexicon(Path(sys.argv[1])))
    except InvalidRequestError as error:
        mistake = error.message
    sys.stdout.write(f"{json.dumps(mistake)}\n")
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        sys.stdout.write(f"{json.dumps(rows[start : start + _ROWS_AT_ONCE])}\n")


if __name__ == "__main__":
    main()
