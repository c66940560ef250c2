"""The process that reads lexicons: one for all files, and another one after its end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NoReturn

import psutil
import pytest

from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.lexicons.reader import LexiconReader

PROGRAM = "voiceagent_tts.plugins.lexicons.reader"


@pytest.fixture
async def reader() -> AsyncIterator[LexiconReader]:
    """A reader, closed after the test."""
    reader = LexiconReader()
    yield reader
    await reader.close()


def processes() -> list[psutil.Process]:
    """The readers of this test; what ends meanwhile is none."""
    found: list[psutil.Process] = []
    for each in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            found += [each] * (PROGRAM in each.cmdline())
    return found


async def reads(reader: LexiconReader, file: Path) -> bool:
    """Whether a lexicon is read whole."""
    names = [f"Name {number}" for number in range(301)]
    file.write_text("\n".join(f'"{name}" = "Nahme"' for name in names))
    matcher = await reader.read(file)
    found = [matcher.match(name, 0, "", is_end=True) for name in names]
    return all(found)


async def test_one_process_reads_all_lexicons(reader: LexiconReader, tmp_path: Path) -> None:
    """Its start stops the event loop for a while. A mistake ends nothing."""
    file = tmp_path / "de.lexicon.toml"
    assert await reads(reader, file)
    (process,) = processes()
    file.write_text("no TOML")
    with pytest.raises(InvalidRequestError, match=file.name):
        await reader.read(file)
    assert await reads(reader, file)
    assert processes() == [process]
    await reader.close()
    assert processes() == []


async def test_a_process_that_ended_is_replaced(reader: LexiconReader, tmp_path: Path) -> None:
    """Whether it ended by itself, or its answer was not read to the end."""
    file = tmp_path / "de.lexicon.toml"
    assert await reads(reader, file)
    (process,) = processes()
    process.kill()
    assert await reads(reader, file)

    reading = asyncio.create_task(reader.read(file))
    await asyncio.sleep(0)
    reading.cancel()
    await asyncio.wait({reading})
    assert await reads(reader, file)


async def test_a_process_that_cannot_start_is_a_mistake_of_the_file(
    reader: LexiconReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A context is then spoken without this lexicon, and the next one tries again."""

    async def refuse(*_: object, **__: object) -> NoReturn:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    with monkeypatch.context() as patch:
        patch.setattr(asyncio, "create_subprocess_exec", refuse)
        with pytest.raises(InvalidRequestError, match="BlockingIOError"):
            await reader.read(tmp_path / "de.lexicon.toml")
    assert await reads(reader, tmp_path / "de.lexicon.toml")
