"""A slow or faulty engine for tests and benchmarks: a real one, its audio delayed.

Words pass at once, as an engine with native words knows them before it generates their audio. Audio
is sent in codec frames at the pace of a chosen real-time factor. `python -m testbed.throttled ...`
is the worker's program with such an engine.
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
from typing import Any

import numpy as np
import numpy.typing as npt

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

VARIABLE = "TESTBED_THROTTLE"
"""Variable of a throttled worker's environment: the fields of its `Throttle` as JSON."""
MakeEngine = Callable[[Inbox, Outbox], Engine]


class CrashRequested(BaseException):
    """Asks the process to kill itself, when its socket has sent the last event.

    A handler for errors of an engine must not catch it.
    """


@dataclass(frozen=True, slots=True)
class Throttle:
    """Delays and faults of an engine.

    Args:
        rtf: compute seconds per audio second; 0 for the engine's own speed.
        first_audio_s: delay of each context's first audio.
        is_silent: whether the engine accepts text and sends no events; heartbeats continue.
        crash_after_s: seconds of audio of one context after which the process kills itself; None
            for never.
        without_words: whether the engine's words are dropped, as if it had none.
        noise_rms: root mean square of pink noise in all audio, also in pauses, in units of PCM16; 0
            for none. A clone of an ordinary recording sounds like that.
        truth_folder: folder for the undelayed audio and words of each context, with which
            benchmarks compare (`Truth`); None for none.
    """

    rtf: float = 0.0
    first_audio_s: float = 0.0
    is_silent: bool = False
    crash_after_s: float | None = None
    without_words: bool = False
    noise_rms: float = 0.0
    truth_folder: str | None = None


class Throttled:
    """Delays or drops the events of the engine inside it."""

    def __init__(
        self, make_engine: MakeEngine, inbox: Inbox, outbox: Outbox, throttle: Throttle
    ) -> None:
        self._outbox = outbox
        self._throttle = throttle
        self._delayed: list[tuple[float, int, Event]] = []  # heap of (due, order, event)
        self._order = itertools.count()
        self._free_at: dict[int, float] = {}  # when each context's next event may be sent
        folder = throttle.truth_folder
        self._truth = None if folder is None else Truth(Path(folder))
        self._noise: npt.NDArray[np.float64] | None = None
        self._engine = make_engine(inbox, self._receive)

    @property
    def capabilities(self) -> Capabilities:
        capabilities = self._engine.capabilities
        if self._throttle.without_words:
            return replace(capabilities, has_native_words=False)
        return capabilities

    @property
    def rows_used(self) -> int:
        """Rows of the engine inside; a row is free there before its delayed audio is sent."""
        return self._engine.rows_used

    @property
    def metrics(self) -> dict[str, float]:
        return self._engine.metrics

    def step(self) -> float | None:
        """Step the engine inside, then send the events that are due."""
        wait_s = self._engine.step()
        now = time.monotonic()
        while self._delayed and self._delayed[0][0] <= now:
            self._send(heapq.heappop(self._delayed)[2])
        if not self._delayed:
            return wait_s
        until_due_s = max(0.0, self._delayed[0][0] - now)
        return until_due_s if wait_s is None else min(wait_s, until_due_s)

    def close(self) -> None:
        self._engine.close()

    def _receive(self, event: Event) -> None:
        if self._throttle.noise_rms and isinstance(event, AudioStep):
            event = AudioStep(tuple(map(self._with_noise, event.rows)))
        if self._truth is not None:
            self._truth.write(event)
        match event:
            case Cancelled(context):
                self._drop(context)
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

    def _with_noise(self, row: ContextAudio) -> ContextAudio:
        """The row's audio in a room whose noise repeats after ten seconds."""
        # Imported here: few engines are in a room, and this loads the voices of others.
        from testbed.noise import pink

        if self._noise is None:
            self._noise = pink(10 * SAMPLE_RATE_HZ, np.random.default_rng(0))
        samples = np.frombuffer(row.chunk.pcm, "<i2") + self._throttle.noise_rms * self._noise.take(
            range(row.chunk.start_sample, row.chunk.end_sample), mode="wrap"
        )
        pcm = np.clip(np.rint(samples), -(1 << 15), (1 << 15) - 1).astype("<i2").tobytes()
        return ContextAudio(row.context, AudioChunk(row.chunk.start_sample, pcm))

    def _push(self, context: int, event: Event, compute_s: float) -> None:
        now = time.monotonic()
        if context not in self._free_at:
            self._free_at[context] = now + self._throttle.first_audio_s
        due = max(now, self._free_at[context]) + compute_s
        self._free_at[context] = due
        if not self._throttle.is_silent:
            heapq.heappush(self._delayed, (due, next(self._order), event))

    def _send(self, event: Event) -> None:
        self._outbox(event)
        match event:
            case AudioStep((row,)):
                self._crash_if_asked(row.chunk.end_sample)
            case Done(context) | Failed(int(context)):
                self._drop(context)
            case _:
                pass

    def _drop(self, context: int) -> None:
        self._free_at.pop(context, None)
        self._delayed = [entry for entry in self._delayed if _context_of(entry[2]) != context]
        heapq.heapify(self._delayed)

    def _crash_if_asked(self, end_sample: int) -> None:
        crash_after_s = self._throttle.crash_after_s
        if crash_after_s is not None and end_sample >= crash_after_s * SAMPLE_RATE_HZ:
            raise CrashRequested


class Truth:
    """Writes the audio and the words of every context to two files, named by process and context.

    `PID-CONTEXT.pcm` is PCM16 at 24 kHz. Each line of `PID-CONTEXT.words` is a JSON list: a word's
    text, its `char_start` and `char_end`, its `start_sample` and `end_sample`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, event: Event) -> None:
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


def _main() -> int:
    from voiceagent_tts.worker import __main__ as program

    def throttled(make: program.Make) -> program.Make:
        def make_throttled(options: dict[str, Any]) -> MakeEngine:
            make_inner = make(options)
            return lambda inbox, outbox: Throttled(make_inner, inbox, outbox, throttle)

        return make_throttled

    throttle = Throttle(**json.loads(os.environ[VARIABLE]))
    program.KINDS.update({kind: throttled(make) for kind, make in program.KINDS.items()})
    try:
        return program.main()
    except CrashRequested:
        os.kill(os.getpid(), signal.SIGKILL)
        raise


if __name__ == "__main__":
    raise SystemExit(_main())
