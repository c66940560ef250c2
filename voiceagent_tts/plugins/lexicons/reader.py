"""`LexiconReader`: reads the lexicons of voices in a process of its own.

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
_TRIES = 2
"""A process that has ended is noticed when it is asked."""
_LONGEST_S = 30.0
"""A file of 20,000 entries takes 0.3 s; a file system that hangs must keep no context waiting."""


class LexiconReader:
    """Starts a process for the first lexicon and keeps it for all others.

    The start of a process stops the event loop until a processor is free for the new process: 7 ms,
    and on a busy machine 40 ms and more.
    """

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._reading = asyncio.Lock()
        self._is_closed = False

    async def read(self, path: Path) -> EntryMatcher:
        """Read a lexicon.

        Raises:
            InvalidRequestError: the file has a mistake, or its process cannot start or answer; the
                message names it.
        """
        problem = "its reader ended early"
        async with self._reading:
            for _ in range(_TRIES):
                if self._is_closed:
                    break
                try:
                    async with asyncio.timeout(_LONGEST_S):
                        return await self._ask(path)
                except EOFError:
                    continue
                except (OSError, ValueError) as error:  # no more processes, or not our answer
                    problem = f"its reader failed: {type(error).__name__}"
        raise InvalidRequestError(f"lexicon: {path}: {problem}")

    async def _ask(self, path: Path) -> EntryMatcher:
        process = self._process = self._process or await _started()
        assert process.stdin is not None and process.stdout is not None
        try:
            with suppress(ConnectionError):  # it has ended, as its output says, too
                process.stdin.write(json.dumps(str(path)).encode() + b"\n")
                await process.stdin.drain()
            mistake = json.loads(await _line(process.stdout))
            matcher = EntryMatcher({})
            while rows := json.loads(await _line(process.stdout)):
                matcher.append(rows)
                await asyncio.sleep(0)  # lines that have arrived are read without a pause
        except BaseException:
            await self._end()  # the rest of this answer would answer the next question
            raise
        if mistake:
            raise InvalidRequestError(mistake, code=ErrorCode.INVALID_PARAM)
        return matcher

    async def close(self) -> None:
        """End the process, and start none again; idempotent."""
        self._is_closed = True
        await self._end()

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _started() -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "voiceagent_tts.plugins.lexicons.reader"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=_MAX_LINE_BYTES,
    )


async def _line(lines: asyncio.StreamReader) -> bytes:
    """The next line."""
    if line := await lines.readline():
        return line
    raise EOFError


def main() -> None:
    """Answer each path by lines of JSON: the mistake in the file, its rows, and an empty list."""
    os.nice(_NICENESS)
    for line in sys.stdin:
        rows, mistake = list[EntryRow](), ""
        try:
            rows = rows_of(read_lexicon(Path(json.loads(line))))
        except InvalidRequestError as error:
            mistake = error.message
        parts = [rows[at : at + _ROWS_AT_ONCE] for at in range(0, len(rows), _ROWS_AT_ONCE)]
        for each in (mistake, *parts, []):
            sys.stdout.write(f"{json.dumps(each)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
