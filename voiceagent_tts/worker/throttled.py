"""A slow or faulty engine for tests and benchmarks: the real one, its sound held back.

Words pass at once, as a native engine knows its words before it has made their sound. Audio leaves
in codec frames at the pace of a chosen real-time factor. Nothing here is used in production.
"""

import heapq
import itertools
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from voiceagent_tts.core import BYTES_PER_SAMPLE, FRAME_SAMPLES, SAMPLE_RATE_HZ, AudioChunk
from voiceagent_tts.seam.engine import Engine, Inbox, Outbox
from voiceagent_tts.seam.events import (
    AudioStep,
    Cancelled,
    Capabilities,
    ContextAudio,
    Done,
    Event,
    Failed,
    SegmentEnd,
    Words,
)

_LEAVING_S = 0.05
"""What was let go leaves in a thread of its own, which dies with the process."""


@dataclass(frozen=True, slots=True)
class Throttle:
    """How to be slow or faulty.

    Args:
        rtf: compute seconds per audio second; 0 is the engine's own speed.
        first_audio_s: each context's first audio comes this much later.
        is_silent: take text and send nothing back, not even an end; heartbeats go on.
        crash_after_s: the process kills itself once it has let this much audio of one context go.
        without_words: drop the engine's words, as an engine without word times.
        truth_folder: where to keep what the engine made of each context, whatever of it leaves:
            what benchmarks compare with (`Truth`).
    """

    rtf: float = 0.0
    first_audio_s: float = 0.0
    is_silent: bool = False
    crash_after_s: float | None = None
    without_words: bool = False
    truth_folder: str | None = None


class Throttled:
    """An engine whose events leave late, never, or with the process."""

    def __init__(
        self,
        make_engine: Callable[[Inbox, Outbox], Engine],
        inbox: Inbox,
        outbox: Outbox,
        throttle: Throttle,
    ) -> None:
        self._outbox = outbox
        self._throttle = throttle
        self._held: list[tuple[float, int, Event]] = []
        self._order = itertools.count()
        self._free_at: dict[int, float] = {}  # when each context's next event may leave
        folder = throttle.truth_folder
        self._truth = None if folder is None else Truth(Path(folder))
        self._engine = make_engine(inbox, self._hold)

    @property
    def capabilities(self) -> Capabilities:
        """Those of the engine inside, less what is withheld."""
        capabilities = self._engine.capabilities
        if self._throttle.without_words:
            return replace(capabilities, has_native_words=False)
        return capabilities

    @property
    def rows_used(self) -> int:
        """Rows of the engine inside; a row is free there before its held audio has left."""
        return self._engine.rows_used

    @property
    def figures(self) -> dict[str, float]:
        """Those of the engine inside."""
        return self._engine.figures

    def step(self) -> float | None:
        """Step the engine inside, then let go what is due."""
        wait_s = self._engine.step()
        now = time.monotonic()
        while self._held and self._held[0][0] <= now:
            self._let_go(heapq.heappop(self._held)[2])
        if not self._held:
            return wait_s
        until_due_s = max(0.0, self._held[0][0] - now)
        return until_due_s if wait_s is None else min(wait_s, until_due_s)

    def close(self) -> None:
        """Close the engine inside."""
        self._engine.close()

    def _hold(self, event: Event) -> None:
        if self._truth is not None:
            self._truth.keep(event)
        match event:
            case Cancelled(context):
                self._forget(context)
                self._outbox(event)
            case Words():
                if not self._throttle.without_words and not self._throttle.is_silent:
                    self._outbox(event)
            case AudioStep(rows):
                for row in rows:
                    for frame in _frames(row):
                        seconds = frame.chunk.samples / SAMPLE_RATE_HZ * self._throttle.rtf
                        self._push(row.context, AudioStep((frame,)), seconds)
            case SegmentEnd(context) | Done(context):
                self._push(context, event, 0.0)
            case Failed(int(context)):
                self._push(context, event, 0.0)
            case _:
                self._outbox(event)

    def _push(self, context: int, event: Event, compute_s: float) -> None:
        now = time.monotonic()
        if context not in self._free_at:
            self._free_at[context] = now + self._throttle.first_audio_s
        due = max(now, self._free_at[context]) + compute_s
        self._free_at[context] = due
        if not self._throttle.is_silent:
            heapq.heappush(self._held, (due, next(self._order), event))

    def _let_go(self, event: Event) -> None:
        self._outbox(event)
        match event:
            case AudioStep((row,)):
                self._crash_if_asked(row.chunk.end_sample)
            case Done(context) | Failed(int(context)):
                self._forget(context)
            case _:
                pass

    def _forget(self, context: int) -> None:
        self._free_at.pop(context, None)
        self._held = [held for held in self._held if _context_of(held[2]) != context]
        heapq.heapify(self._held)

    def _crash_if_asked(self, end_sample: int) -> None:
        crash_after_s = self._throttle.crash_after_s
        if crash_after_s is not None and end_sample >= crash_after_s * SAMPLE_RATE_HZ:
            time.sleep(_LEAVING_S)
            os.kill(os.getpid(), signal.SIGKILL)


class Truth:
    """Keeps the sound and the words of every context in two files, named by process and context.

    `PID-CONTEXT.pcm` is PCM16 at 24 kHz. Each line of `PID-CONTEXT.words` is a JSON list: a word's
    text, its `char_start` and `char_end`, its `start_sample` and `end_sample`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, event: Event) -> None:
        """Write down what `event` tells of a context."""
        match event:
            case AudioStep(rows):
                for row in rows:
                    with self._path(row.context, "pcm").open("ab") as file:
                        file.write(row.chunk.pcm)
            case Words(context, words):
                with self._path(context, "words").open("a", encoding="utf-8") as file:
                    for timestamp in words:
                        word = timestamp.word
                        span = (word.text, word.char_start, word.char_end)
                        times = (timestamp.start_sample, timestamp.end_sample)
                        file.write(json.dumps([*span, *times], ensure_ascii=False) + "\n")
            case _:
                pass

    def _path(self, context: int, suffix: str) -> Path:
        return self._folder / f"{os.getpid()}-{context}.{suffix}"


def _frames(row: ContextAudio) -> Iterator[ContextAudio]:
    frame_bytes = FRAME_SAMPLES * BYTES_PER_SAMPLE
    for start in range(0, len(row.chunk.pcm), frame_bytes):
        start_sample = row.chunk.start_sample + start // BYTES_PER_SAMPLE
        pcm = row.chunk.pcm[start : start + frame_bytes]
        yield ContextAudio(row.context, AudioChunk(start_sample, pcm))


def _context_of(event: Event) -> int | None:
    match event:
        case AudioStep((row,)):
            return row.context
        case SegmentEnd(context) | Done(context) | Failed(context):
            return context
        case _:
            return None
