"""`Playout`: tracks which part of the audio sent to the transport is being played.

A transport plays whole chunks: audio that does not fill one waits for more, or for silence at the
end of its utterance, and an interruption leaves the one that plays. The transport reports when it
starts an utterance, when a chunk has ended, and when it has stopped. These reports decide which
chunk plays, and no clock: other work on the machine delays both, but not by the same time, and some
transports make up for the delay while others never do. Computed are only how long a transport that
reports ahead of its playback still takes, when the end of an utterance has reached the listener,
and all times of a transport that reports nothing.

Current times are arguments.
"""

import enum
import math
from collections import deque
from dataclasses import dataclass

from pipecat.frames.frames import TTSAudioRawFrame

from voiceagent_tts.adapters.turn import audible_at, heard_samples
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, samples_to_ms

DEFAULT_CHUNK_S = 0.04
"""Length of the chunks that Pipecat's transports play by default."""
_PAUSE_S = 0.2
"""Pause between two utterances that are queued one after the other."""
_REPORT_TIMEOUT_S = 2.0
"""A transport that has audio and reports nothing for longer is assumed to play without reports."""
_SILENCE_S = 0.5
"""A report this late may mean that the transport lost audio: more audio is sent by the clock."""
_ROUNDING_S = 1e-4


class _Start(enum.Enum):
    """What is known of the start of the first utterance since the last interruption."""

    UNKNOWN = enum.auto()
    """The transport has reported nothing about these chunks; those before an interruption end late.
    """
    ASSUMED = enum.auto()
    """A chunk has ended that can only be one of these, and no start was reported."""
    REPORTED = enum.auto()


@dataclass(slots=True)
class _Run:
    """Chunks that play without a gap.

    Attributes:
        at_s: when that plays, at the earliest.
        possible_s: when it could play, had the transport lost no time.
        reported_s: when the transport reported that it plays.
    """

    first_chunk: int
    at_s: float
    possible_s: float
    reported_s: float


@dataclass(slots=True)
class _Context:
    """The audio of a context.

    Attributes:
        played_at_s: when the transport reported that this one was played; None before.
    """

    context_id: str | None
    start: int
    samples: int
    last_chunk: int
    played_at_s: float | None = None


class Playout:
    """Counts the chunks that a transport has received and has played.

    Chunks are numbered from the first one since the last interruption.

    Args:
        latency_s: delay between the transport and the listener.

    Attributes:
        chunk_s: length of the chunks that the transport plays.
        reports: number of reports of the transport so far.
    """

    def __init__(self, latency_s: float) -> None:
        self.chunk_s = DEFAULT_CHUNK_S
        self._latency_s = latency_s
        self.reports = 0
        self._context_id: str | None = None
        self._frame_samples = 0  # of the context, at the sample rate of its frames
        self._context_samples = 0  # of the context, at 24 kHz
        self._is_interruptible = True
        self._reported_at_s = 0.0
        self._is_unseen = True  # whether the transport plays without reports
        self._reports_ahead = False  # of its playback, as soon as it has got a chunk
        self._forget_chunks()

    def _forget_chunks(self) -> None:
        self._left: dict[str, tuple[int, int]] = {}
        """The samples of each context that goes on, as of the current one: at both sample rates."""
        self._left_samples = 0  # of all contexts, at 24 kHz, with what fills up chunks
        self._context_start = 0  # where the context begins in them
        self._ended_s = 0.0  # length of what was played
        self._lost_chunks = 0  # that no report will come for
        self._start = _Start.UNKNOWN
        self._is_new_utterance = True  # whether the next chunk is the first one of an utterance
        self._unstarted: deque[int] = deque()  # first chunks of utterances that have not started
        self._awaited_stops = 0  # of utterances whose audio is complete
        self._runs: deque[_Run] = deque()
        self._ended: list[_Context] = []  # whose end may not have reached the listener

    # What leaves.

    def start_context(self, context_id: str | None) -> None:
        """The audio of `context_id` follows that of the previous context.

        Pipecat reopens a context after a long silence, in which another one may have played.
        """
        if context_id == self._context_id:
            return
        self._context_id = context_id
        self._frame_samples, self._context_samples = self._left.get(context_id or "", (0, 0))
        self._context_start = self._left_samples - self._context_samples

    def play(self, frame: TTSAudioRawFrame, now_s: float) -> None:
        """`frame` leaves at `now_s` and plays after the audio that left before it."""
        self._frame_samples += len(frame.audio) // BYTES_PER_SAMPLE
        end_sample = self._frame_samples * SAMPLE_RATE_HZ // frame.sample_rate
        self._is_interruptible = frame.interruptible
        self._add(end_sample - self._context_samples, now_s)
        self._context_samples = end_sample
        if frame.context_id is not None and self.plays(frame.context_id):  # and no pause behind it
            self._left[frame.context_id] = self._frame_samples, end_sample

    def end_context(self, now_s: float) -> None:
        """The transport fills up its last chunk, and reports that the utterance has ended."""
        self._left.pop(self._context_id or "", None)
        self._add(-self._left_samples % self._chunk_samples, now_s)
        if not self._is_new_utterance:
            self._awaited_stops += 1
        self._is_new_utterance = True
        self._ended = [each for each in self._ended if self._heard(each, now_s) < each.samples]
        self._ended.append(self._context)

    @property
    def _context(self) -> _Context:
        return _Context(
            self._context_id, self._context_start, self._context_samples, self.last_chunk
        )

    def _add(self, samples: int, now_s: float) -> None:
        first_chunk = self._chunks
        self._left_samples += samples
        if self._chunks == first_chunk:
            return
        if self._is_new_utterance:
            self._unstarted.append(first_chunk)
            self._is_new_utterance = False
        has_gap = self._ended_chunks >= first_chunk or not self._has_reports
        if not self._runs or (has_gap and now_s > self._earliest_s(first_chunk)):
            self._runs.append(_Run(first_chunk, now_s, now_s, now_s))

    def interrupt(self) -> bool:
        """The transport drops the audio that it has not played; return False if it continues."""
        if self._is_interruptible:
            self._forget_chunks()
        return self._is_interruptible

    # What the transport reports.

    def transport_ready(self, chunk_s: float) -> None:
        """There is a transport, which plays chunks of this length."""
        self.chunk_s, self._is_unseen = chunk_s, False

    def transport_started(self, now_s: float) -> None:
        """The transport plays the first chunk of an utterance."""
        if self._start is _Start.ASSUMED:  # wrongly: that chunk was before the interruption
            self._start, self._ended_s = _Start.REPORTED, 0.0
            self._unstarted.appendleft(0)
        if not self._unstarted:
            return
        self._note_report(now_s)
        self._start, self._lost_chunks = _Start.REPORTED, 0
        chunk = self._unstarted.popleft()
        possible_s = self._earliest_s(chunk)
        while self._runs and self._runs[-1].first_chunk >= chunk:
            self._runs.pop()
        at_s = max(now_s, possible_s)
        self._runs.append(_Run(chunk, at_s, possible_s, at_s))

    def chunk_ended(self, length_s: float, now_s: float) -> None:
        """The transport has played one more chunk, and plays the next one if it has one."""
        # A transport that was interrupted between two chunks reports the start of the one that is
        # left, and not that of the next utterance.
        began_s = now_s - length_s
        if not self._has_reports and self._runs and began_s > self._runs[0].at_s - _ROUNDING_S:
            self.transport_started(began_s)
            self._start = _Start.ASSUMED
        if not self._has_reports:
            return
        if (late_s := self._late_s(now_s)) > _SILENCE_S:
            self._lost_chunks += min(int(late_s / self.chunk_s), self._waiting_chunks)
        self._note_report(now_s)
        self._end(self._ended_s + length_s, now_s)
        early_s = self._earliest_s(self._ended_chunks) - now_s
        if early_s > 0 and self._runs and not self._reports_ahead:
            self._move_start(self._runs[0], early_s)

    def _move_start(self, run: _Run, early_s: float) -> None:
        """A chunk of `run` ended too early: its start was reported late, and playback catches up.

        Where no start is early enough, the transport reports what it has got and not what it plays.
        """
        run.at_s -= early_s
        self._reports_ahead = run.at_s < run.possible_s - self.chunk_s
        run.at_s = run.reported_s if self._reports_ahead else max(run.at_s, run.possible_s)

    def transport_stopped(self, now_s: float) -> None:
        """The transport has played an utterance, or has waited too long for more of it."""
        if not self._has_reports:
            return
        self._note_report(now_s)
        self._start, self._lost_chunks = _Start.REPORTED, 0
        self._end((self._unstarted[0] if self._unstarted else self._chunks) * self.chunk_s, now_s)
        if self._awaited_stops:
            self._awaited_stops -= 1
            return
        dropped_samples = self._left_samples % self._chunk_samples  # by the transport
        self._left_samples -= dropped_samples
        self._context_start -= dropped_samples
        self._is_new_utterance = True

    @property
    def _has_reports(self) -> bool:
        return self._start is not _Start.UNKNOWN

    def _note_report(self, now_s: float) -> None:
        self.reports += 1
        self._reported_at_s, self._is_unseen = now_s, False

    def _end(self, ended_s: float, now_s: float) -> None:
        self._ended_s = min(max(ended_s, self._ended_s), self._chunks * self.chunk_s)
        for context in self._ended:
            if context.played_at_s is None and context.last_chunk < self._ended_chunks:
                context.played_at_s = max(now_s, self._earliest_end_s(context))
        while self._unstarted and self._unstarted[0] < self._ended_chunks:
            self._unstarted.popleft()
        while len(self._runs) > 1 and self._runs[1].first_chunk <= self._ended_chunks:
            self._runs.popleft()

    # What plays.

    @property
    def _chunk_samples(self) -> int:
        return round(self.chunk_s * SAMPLE_RATE_HZ)

    @property
    def _chunks(self) -> int:
        return self._left_samples // self._chunk_samples

    @property
    def _ended_chunks(self) -> int:
        """Chunks that were played; a filter in the transport may cut the reported ones anew."""
        return int((self._ended_s + _ROUNDING_S) / self.chunk_s)

    @property
    def _waiting_chunks(self) -> int:
        return max(0, self._chunks - self._ended_chunks - self._lost_chunks - 1)

    def _late_s(self, now_s: float) -> float:
        return now_s - self._began_s - self.chunk_s

    @property
    def _began_s(self) -> float:
        return max(self._reported_at_s, self._earliest_s(self._ended_chunks))

    def _earliest_s(self, chunk: int) -> float:
        known = [run for run in self._runs if run.first_chunk <= chunk]
        return known[-1].at_s + (chunk - known[-1].first_chunk) * self.chunk_s if known else 0.0

    def _earliest_end_s(self, context: _Context) -> float:
        return self._earliest_s(context.last_chunk) + self.chunk_s

    def _played_at_s(self, context: _Context) -> float | None:
        is_unknown = context.played_at_s is None and self._is_unseen and bool(self._runs)
        return self._earliest_end_s(context) if is_unknown else context.played_at_s

    def _has_begun(self, chunk: int) -> bool:
        is_started = not (self._unstarted and self._unstarted[0] <= chunk)
        has_left = chunk < self._chunks
        return has_left and self._has_reports and is_started and chunk <= self._ended_chunks

    def wait_s(self, chunk: int, now_s: float) -> float | None:
        """Time until `chunk` plays; None while it depends on a report."""
        if self._is_unseen or self._has_begun(chunk):
            return _rounded(self._earliest_s(chunk) - now_s)
        return None

    def wait_after_s(self, chunk: int, after_s: float, now_s: float) -> float | None:
        """Time until `chunk`, the last one of its context, was played `after_s` ago."""
        context = next((each for each in self._ended if each.last_chunk == chunk), None)
        wait_s = self.wait_s(chunk, now_s)
        if wait_s != 0.0 or context is None:
            return wait_s
        played_at_s = self._played_at_s(context)
        return None if played_at_s is None else _rounded(played_at_s + after_s - now_s)

    def at_hand_s(self, chunk: int, now_s: float) -> float:
        """Time until `chunk` plays, if nothing delays it from now on."""
        by_reports_s = self._began_s + (chunk - self._ended_chunks) * self.chunk_s
        return max(self._earliest_s(chunk), by_reports_s) - now_s

    def report_overdue_s(self, chunk: int, now_s: float) -> float:
        """Time until the transport has not reported for too long that `chunk` plays."""
        return max(self._earliest_s(chunk), self._reported_at_s) + _REPORT_TIMEOUT_S - now_s

    def go_on_unseen(self) -> None:
        """The transport does not report: its chunks play as early as they can."""
        self._is_unseen = True

    def chunk_at(self, position_s: float) -> int:
        """The chunk that makes a word at this position of the current context audible."""
        return math.ceil(self._audible_at(position_s) / self._chunk_samples) - 1

    def _audible_at(self, position_s: float) -> int:
        """How much has been played once a word at a position of the context counts as heard."""
        start = self._context_start + round(max(0.0, position_s) * SAMPLE_RATE_HZ)
        return audible_at(start, self._latency_s)

    def after_end_s(self, position_s: float) -> float:
        """How long after the end of what has left a word is heard that is on its way then."""
        missing = self._audible_at(position_s) - self._chunks * self._chunk_samples
        return max(0.0, min(missing / SAMPLE_RATE_HZ, self._latency_s))

    @property
    def last_chunk(self) -> int:
        """The last chunk that has left; -1 without one."""
        return self._chunks - 1

    def makes_audible(self, context_id: str | None, position_s: float) -> bool:
        """Whether the transport has the chunk that makes a word at this position audible."""
        return self.plays(context_id) and self.chunk_at(position_s) < self._chunks

    def plays(self, context_id: str | None) -> bool:
        """Whether `context_id` is the context whose audio is leaving."""
        return context_id is not None and context_id == self._context_id

    def has_audio(self, context_id: str) -> bool:
        """Whether any audio of `context_id` has left."""
        return self.plays(context_id) and self._context_samples > 0

    def end_s(self, now_s: float) -> float:
        """Earliest time at which all audio sent has been played; 0 if there was none."""
        if not self._runs:
            return 0.0
        earliest_s = self._earliest_s(self._chunks)
        is_followed = self._has_reports and self._late_s(now_s) <= _SILENCE_S
        if not (is_followed and self._waiting_chunks):
            return earliest_s
        return max(earliest_s, now_s + self._waiting_chunks * self.chunk_s)

    def lead_s(self, now_s: float) -> float:
        """Audio that has left and is not played yet."""
        return max(0.0, self.end_s(now_s) - now_s)

    def pause_s(self, now_s: float) -> float:
        """Silence that is missing between the last utterance and one that begins now."""
        if not self._runs:
            return 0.0  # nothing was played, or it was interrupted
        return max(0.0, min(_PAUSE_S, self.end_s(now_s) + _PAUSE_S - now_s))

    def heard_ms(self, context_id: str, now_s: float) -> int:
        """Audio of `context_id` that the listener has heard once the chunks that play are over."""
        current = self._context if self.plays(context_id) else None
        context = self._find_ended(context_id) or current
        return samples_to_ms(self._heard(context, now_s)) if context else 0

    def is_heard(self, context_id: str, now_s: float) -> bool:
        """Whether the listener will then have heard `context_id` to its end."""
        context = self._find_ended(context_id)
        return context is not None and self._heard(context, now_s) == context.samples

    def is_past(self, context_id: str) -> bool:
        """Whether `context_id` was heard to its end before, and is forgotten."""
        return not self.plays(context_id) and self._find_ended(context_id) is None

    def _find_ended(self, context_id: str) -> _Context | None:
        return next((each for each in self._ended if each.context_id == context_id), None)

    def _heard(self, context: _Context, now_s: float) -> int:
        played_at_s = self._played_at_s(context)
        if played_at_s is not None and played_at_s <= now_s:
            on_its_way_s = self._latency_s - (now_s - played_at_s)
            heard = context.samples - round(max(0.0, on_its_way_s) * SAMPLE_RATE_HZ)
        else:
            played = (self._playing_chunk(now_s) + 1) * self._chunk_samples
            heard = heard_samples(played, self._latency_s) - context.start
        return max(0, min(heard, context.samples))

    def _playing_chunk(self, now_s: float) -> int:
        """The last chunk that has begun to play; -1 without one."""
        chunk = self.last_chunk if self._is_unseen else min(self._ended_chunks, self.last_chunk)
        while chunk >= 0 and self.wait_s(chunk, now_s) != 0.0:
            chunk -= 1
        return chunk


def _rounded(wait_s: float) -> float:
    return wait_s if wait_s > _ROUNDING_S else 0.0
