"""A voice whose lexicon takes as long to read as a test wants."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from voiceagent_tts.plugins.lexicons.reader import LexiconReader
from voiceagent_tts.plugins.lexicons.server import SUFFIX
from voiceagent_tts.text.entries import EntryMatcher

SLOW_VOICE = "en-gb"


@contextlib.contextmanager
def slow_lexicon(folder: Path) -> Iterator[None]:
    """Within the block, a context with `SLOW_VOICE` waits to be opened."""
    (folder / f"{SLOW_VOICE}{SUFFIX}").write_text('nginx = "engine x"')
    may_end = asyncio.Event()
    read = LexiconReader.read

    async def read_slowly(reader: LexiconReader, path: Path) -> EntryMatcher:
        matcher = await read(reader, path)
        await may_end.wait()
        return matcher

    with mock.patch.object(LexiconReader, "read", read_slowly):
        try:
            yield
        finally:
            may_end.set()
