"""Lexicons of voices, from their files."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from testbed.contexts import UNPACED, collect
from testbed.servers import StartSynthesizer
from voiceagent_tts.lexicon import check_entries
from voiceagent_tts.plugins.lexicons import reader
from voiceagent_tts.plugins.lexicons.reader import LexiconReader
from voiceagent_tts.plugins.lexicons.server import FolderLexicons
from voiceagent_tts.synthesizer.context import Context
from voiceagent_tts.synthesizer.options import ContextOptions
from voiceagent_tts.text.entries import EntryMatcher
from voiceagent_tts.voices import Voice

NOVA = Voice("nova", "espeak")


def near(samples: int) -> Any:
    """As long as that, for espeak."""
    return pytest.approx(samples, rel=0.02)  # espeak's speech of a text varies in one process


async def spoken(context: Context, text: str) -> int:
    """Speak `text`; how many samples that takes."""
    context.push_text(text)
    context.finish()
    return (await collect(context)).samples


async def test_the_lexicons_of_voice_and_server(
    start_synthesizer: StartSynthesizer, tmp_path: Path
) -> None:
    """The context's comes before the voice's, that before the server's; a file may change."""
    synthesizer = await start_synthesizer(
        lexicon=check_entries({"abc": "one", "xyz": "seventeen hundred"})
    )
    lexicons = FolderLexicons(tmp_path)
    synthesizer.before_open.append(lexicons.load)
    synthesizer.find_lexicon = lexicons.find
    options = replace(UNPACED, voice="nova")

    async def length(text: str, options: ContextOptions = options) -> int:
        return await spoken(await synthesizer.open(options), text)

    assert await length("abc xyz") == near(await length("one seventeen hundred"))
    (tmp_path / "nova.lexicon.toml").write_text('abc = "two thousand"')
    assert await length("abc xyz") == near(await length("two thousand seventeen hundred"))
    assert await length("abc", UNPACED) == near(await length("one", UNPACED)), "another voice"
    own = replace(options, lexicon=check_entries({"abc": "six million and four"}))
    assert await length("abc", own) == near(await length("six million and four"))
    (tmp_path / "nova.lexicon.toml").write_text("no TOML")
    assert await length("abc") == near(await length("one")), "the mistake is in the log"
    await lexicons.close()


async def test_the_lexicon_of_a_voice_is_read_once_and_in_a_process_of_its_own(
    start_synthesizer: StartSynthesizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long one takes a third of a second, in which others speak and are cancelled."""
    files: list[Path] = []
    read = LexiconReader.read

    async def read_here(reading: LexiconReader, path: Path) -> EntryMatcher:
        files.append(path)
        return await read(reading, path)

    def refuse(*_: object) -> NoReturn:
        raise AssertionError("the file is parsed here")

    monkeypatch.setattr(LexiconReader, "read", read_here)
    monkeypatch.setattr(reader, "read_lexicon", refuse)
    monkeypatch.setattr(reader, "rows_of", refuse)
    (file := tmp_path / "nova.lexicon.toml").write_text('abc = "two thousand"')
    synthesizer = await start_synthesizer()
    lexicons = FolderLexicons(tmp_path)
    synthesizer.before_open.append(lexicons.load)
    synthesizer.find_lexicon = lexicons.find
    for _ in range(2):
        (await synthesizer.open(replace(UNPACED, voice="nova"))).abandon()
    assert files == [file]
    await lexicons.close()


async def test_no_lexicon_is_read_after_the_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process would be left over."""

    async def refuse(*_: object) -> NoReturn:
        raise AssertionError("a reader starts")

    monkeypatch.setattr(LexiconReader, "read", refuse)
    (tmp_path / "nova.lexicon.toml").write_text('abc = "two thousand"')
    lexicons = FolderLexicons(tmp_path)
    loading = asyncio.create_task(lexicons.load(NOVA))
    await asyncio.sleep(0)
    await lexicons.close()
    await loading
    assert lexicons.find(NOVA) is None
