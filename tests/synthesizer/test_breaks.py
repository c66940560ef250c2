"""Breaks for a listener who plays at once: silence leaves as playback allows, like all audio.

The engine is scripted, and the clock is, too.
"""

import asyncio
import re
from collections import deque
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from testbed.scripted_context import (
    LIMITS,
    ScriptedWorker,
    open_context,
    run_by_the_loops_clock,
)
from testbed.scripted_time import run_scripted
from voiceagent_tts.core import (
    MAX_MESSAGE_PCM_BYTES,
    SAMPLE_RATE_HZ,
    AudioChunk,
    PlayoutClock,
    Word,
    WordTimestamp,
    ms_to_samples,
)
from voiceagent_tts.errors import EngineError, ErrorCode, VoiceAgentError
from voiceagent_tts.seam.aligner_messages import AlignCommand
from voiceagent_tts.seam.commands import Append, Command, Credit, Submit
from voiceagent_tts.seam.events import (
    AudioStep,
    ContextAudio,
    Done,
    Event,
    Failed,
    SegmentEnd,
    Words,
)
from voiceagent_tts.synthesizer.events import (
    ContextCancelled,
    ContextDone,
    ContextEvent,
    ContextFailed,
    ContextFlushed,
    ContextWords,
)
from voiceagent_tts.synthesizer.options import ContextOptions
from voiceagent_tts.text.reader import MAX_PAUSES_MS

FRAME_SAMPLES = ms_to_samples(80)
WORD_SAMPLES = 4 * FRAME_SAMPLES
MESSAGE_SAMPLES = max(FRAME_SAMPLES, MAX_MESSAGE_PCM_BYTES // 2)
LONG = '<break time="10s"/>'


def words_of(text: str) -> list[Word]:
    """The words of a text without tags."""
    return [Word(each[0], each.start(), each.end()) for each in re.finditer(r"\S+", text)]


class Engine(ScriptedWorker):
    """A worker that makes the audio that it has credit for: four loud frames a word."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: deque[Event | None] = deque()
        """What follows, in order; None is a frame."""
        self._planned_samples = self.made_samples = self._wanted_samples = 0

    def detach(self, context: int, *, needs_cancel: bool) -> None:
        """Say no more."""
        self._waiting.clear()

    def send(self, command: Command | AlignCommand) -> None:
        """Speak what is wanted, in a later iteration of the event loop."""
        match command:
            case Submit() | Append():
                self._plan(command)
            case Credit():
                self._wanted_samples = command.samples_wanted
            case _:
                pass
        asyncio.get_running_loop().call_soon(self._run)

    def _plan(self, part: Submit | Append) -> None:
        times: list[WordTimestamp] = []
        for word in words_of(part.text):
            start, end = word.char_start + part.char_base, word.char_end + part.char_base
            times.append(WordTimestamp(Word(word.text, start, end), self._planned_samples, None, 1))
            self._planned_samples += WORD_SAMPLES
        if times:
            self._waiting.append(Words(1, tuple(times)))
        self._waiting += [None] * (len(times) * WORD_SAMPLES // FRAME_SAMPLES)
        char_end = part.char_base + len(part.text)
        self._waiting.append(SegmentEnd(1, char_end, self._planned_samples))
        if not part.more:
            self._waiting.append(Done(1, self._planned_samples))

    def lose_text(self) -> None:
        """Make noise of the rest of the text, and find that it is lost."""
        self._waiting.clear()
        chunk = AudioChunk(self.made_samples, b"\2\0" * FRAME_SAMPLES)
        self.answer(AudioStep((ContextAudio(1, chunk),)))
        self.answer(Failed(1, ErrorCode.TEXT_LOST, "the text is lost"))

    def _run(self) -> None:
        while self._waiting:
            if (event := self._waiting[0]) is None and self.made_samples >= self._wanted_samples:
                return
            self._waiting.popleft()
            if event is None:
                chunk = AudioChunk(self.made_samples, b"\1\0" * FRAME_SAMPLES)
                self.made_samples = chunk.end_sample
                event = AudioStep((ContextAudio(1, chunk),))
            self.answer(event)


class Said:
    """A context, and what its listener gets and when.

    Attributes:
        pcm: the audio sent.
        events: everything else, with the time since the opening.
        leads_s: the lead over playback with each message.
    """

    def __init__(self, max_lead_s: float | None) -> None:
        self.engine, self.pcm = Engine(), b""
        self.events: list[tuple[float, ContextEvent]] = []
        self.leads_s: list[float] = []
        options = ContextOptions(language="en", has_markup=True, max_lead_s=max_lead_s)
        self.context = open_context(self.engine, options)
        self._playout = PlayoutClock()
        self._began = asyncio.get_running_loop().time()
        self._reading = asyncio.create_task(self._read())

    @property
    def now_s(self) -> float:
        """Seconds since the context was opened."""
        return asyncio.get_running_loop().time() - self._began

    @property
    def sent_samples(self) -> int:
        """Samples of the audio sent."""
        return len(self.pcm) // 2

    async def _read(self) -> None:
        async for event in self.context:
            if isinstance(event, AudioChunk):
                assert event.start_sample == self.sent_samples
                assert event.samples <= MESSAGE_SAMPLES
                self.pcm += event.pcm
                self._playout.send(event.samples, self._began + self.now_s)
                self.leads_s.append(self._playout.lead_s(self._began + self.now_s))
            else:
                self.events.append((self.now_s, event))

    async def end(self) -> None:
        """Wait for the last event."""
        await self._reading

    @property
    def words(self) -> list[tuple[str, int]]:
        """The words and their starts."""
        return [
            (each.word.text, each.start_sample)
            for _, event in self.events
            if isinstance(event, ContextWords)
            for each in event.words
        ]


@pytest.fixture(autouse=True)
def _scripted_clock(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    run_by_the_loops_clock(monkeypatch)


Part = str | int
"""Words, or a break's length in ms."""


def expected(parts: Sequence[Part]) -> tuple[list[tuple[str, int]], str]:
    """The words with their starts, and the audio in frames' hundredths: `w` or `-` for each ms."""
    words: list[tuple[str, int]] = []
    sound, left_ms = "", MAX_PAUSES_MS
    for part in parts:
        if isinstance(part, int):
            sound += "-" * min(part, left_ms)
            left_ms -= min(part, left_ms)
            continue
        for word in words_of(part):
            words.append((word.text, ms_to_samples(len(sound))))
            sound += "w" * (1000 * WORD_SAMPLES // SAMPLE_RATE_HZ)
    return words, sound


def sound_of(pcm: bytes) -> str:
    """`w` for each ms of speech, `-` for each of silence; every ms is one or the other."""
    rows = np.frombuffer(pcm, "<i2").reshape(-1, ms_to_samples(1))
    assert (rows == rows[:, :1]).all()
    return "".join("w" if each else "-" for each in rows[:, 0])


SPOKEN = ("One. ", "Two three. ", "And so, on we go to the next one. ", " ", "no end ", "Why? ")
BREAKS_MS = (0, 1, 40, 700, 3_000, 10_000)


@given(
    parts=st.lists(st.sampled_from(SPOKEN) | st.sampled_from(BREAKS_MS), max_size=12),
    max_lead_s=st.sampled_from((0.2, 1.0, None, 0.0)),
    flushes=st.sets(st.integers(0, 11)),
)
@example(parts=[10_000] * 6, max_lead_s=1.0, flushes=set())
@example(parts=["One. ", *[10_000] * 7, "Two. "], max_lead_s=None, flushes={0, 3})
def test_a_text_with_breaks(parts: list[Part], max_lead_s: float | None, flushes: set[int]) -> None:
    """Any: exact audio and words, a bounded lead, answers in their places, and an end."""

    async def run() -> None:
        said = Said(max_lead_s)
        ends: list[int] = []
        for place, part in enumerate(parts):
            said.context.push_text(f'<break time="{part}ms"/>' if isinstance(part, int) else part)
            if place in flushes:
                said.context.flush(place)
                ends.append(ms_to_samples(len(expected(parts[: place + 1])[1])))
        said.context.finish()
        await said.end()
        words, sound = expected(parts)
        assert sound_of(said.pcm) == sound
        assert said.words == words
        flushed = [each.end_sample for _, each in said.events if isinstance(each, ContextFlushed)]
        assert flushed == ends
        at_s, done = said.events[-1]
        assert isinstance(done, ContextDone) and done.reason == "complete"
        if max_lead_s == 0:
            assert at_s == 0.0
        else:
            lead_s = max_lead_s or LIMITS.max_lead_s
            most_s = lead_s + MESSAGE_SAMPLES / SAMPLE_RATE_HZ
            assert all(lead <= most_s + 1e-6 for lead in said.leads_s)
            assert at_s >= len(sound) / 1000 - most_s - 1e-6

    run_scripted(run(), has_sockets=False)


def test_a_cut_inside_a_break() -> None:
    """What was heard ends with the word before the break, by either clock."""

    async def run() -> None:
        text = f"One two. {LONG}{LONG}Three."
        for played_samples in (None, 12 * SAMPLE_RATE_HZ):
            said = Said(1.0)
            said.context.push_text(text)
            said.context.finish()
            await asyncio.sleep(12.0)
            cut = said.context.cut(played_samples)
            assert said.sent_samples <= 13.2 * SAMPLE_RATE_HZ
            said.context.cancel(played_samples)
            await said.end()
            assert cut.text_spoken == text[:8] and cut.text_remaining == text[8:]
            (_, cancelled), _ = said.events[-2:]
            assert isinstance(cancelled, ContextCancelled) and cancelled.cut == cut

    run_scripted(run(), has_sockets=False)


def test_the_engine_speaks_no_further_ahead_for_a_break() -> None:
    """What is spoken behind a break counts from the end of it."""

    async def run() -> None:
        said = Said(1.0)
        said.context.push_text(f"One. {LONG}" + "And so on it goes. " * 10)
        said.context.finish()
        await asyncio.sleep(5.0)
        assert said.engine.made_samples <= 1.1 * SAMPLE_RATE_HZ
        said.context.cancel()
        await said.end()

    run_scripted(run(), has_sockets=False)


def test_a_failure_is_told_at_once_although_a_break_waits() -> None:
    """What is before it leaves at once, and the client can have the rest spoken."""

    async def run() -> None:
        said = Said(1.0)
        said.context.push_text(f"One. {LONG}")
        said.context.flush(1)
        await asyncio.sleep(2.0)
        said.context.fail(EngineError("it broke"))
        await said.end()
        (failed_s, failed), (_, done) = said.events[-2:]
        assert isinstance(failed, ContextFailed) and isinstance(done, ContextDone)
        assert failed_s == 2.0
        assert said.sent_samples == ms_to_samples(10_000) + WORD_SAMPLES

    run_scripted(run(), has_sockets=False)


def test_a_lost_text_takes_nothing_of_what_was_said_before_it() -> None:
    """Only its own noise is dropped; segments that wait behind a break are heard."""

    async def run() -> None:
        said = Said(None)
        said.context.push_text(f"One. {LONG}Two three. ")
        said.context.flush(1)
        await asyncio.sleep(0.5)
        said.context.push_text("Four.")
        said.context.finish()
        said.engine.lose_text()
        await said.end()
        flushed, failed = (each for _, each in said.events[-3:-1])
        assert isinstance(flushed, ContextFlushed) and isinstance(failed, ContextFailed)
        assert said.sent_samples == flushed.end_sample == ms_to_samples(10_000) + 3 * WORD_SAMPLES
        assert isinstance(error := failed.error, VoiceAgentError)
        assert error.spoken_chars == len(f"One. {LONG}Two three. ")

    run_scripted(run(), has_sockets=False)
