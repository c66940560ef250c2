"""Reads the lexicon of a voice in a process of its own.

A file of 20,000 entries takes 0.3 s of computing. In a thread of the server it would own Python's
lock for most of that time; on a busy machine, where the thread waits for a processor while it has
the lock, the event loop waits with it. The process does the work, behind what is spoken meanwhile,
and the event loop takes rows from it in small parts.
"""

import asyncio
import json
import os
import sys
from contextlib import suppress
from pathlib import Path

from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.lexicon import read_lexicon
from voiceagent_tts.text.entries import EntryMatcher, EntryRow, rows_of

_ROWS_AT_ONCE = 100
"""Rows of a line of the output: taking them takes 0.1 ms, in which the event loop cannot run."""
_MAX_LINE_BYTES = 1 << 21
_NICENESS = 5


async def read_matcher(path: Path) -> EntryMatcher:
    """Read a lexicon.

    Raises:
        InvalidRequestError: the file has a mistake; the message names it.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "voiceagent_tts.synthesizer.lexicon_reader", str(path)),
        stdout=asyncio.subprocess.PIPE,
        limit=_MAX_LINE_BYTES,
    )
    assert process.stdout is not None
    matcher = EntryMatcher({})
    try:
        mistake = await process.stdout.readline()
        async for line in process.stdout:
            matcher.append(json.loads(line))
            await asyncio.sleep(0)  # lines that have arrived are read without a pause
    except BaseException:
        with suppress(ProcessLookupError):
            process.kill()
        raise
    if await process.wait() or not mistake:
        mistake = json.dumps(f"lexicon: {path}: its reader ended early").encode()
    if message := json.loads(mistake):
        raise InvalidRequestError(message, code=ErrorCode.INVALID_PARAM)
    return matcher


def main() -> None:
    """Write the mistake in the file, or an empty string and the rows, as lines of JSON."""
    os.nice(_NICENESS)
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
