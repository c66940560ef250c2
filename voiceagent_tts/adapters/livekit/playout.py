"""`Playout`: how much of a reply was heard, which becomes the reply's text in LiveKit's history.

At the end of playback LiveKit's output reports how much audio it has played
(`PlaybackFinishedEvent`), and LiveKit commits the text in that event. By default this is the text
that its transcript has shown, which is a word or two off. A `Playout` replaces it by the words that
were heard by then. It uses no timer and no audio frames, so a busy event loop, a long wait before
playback or a `tts_node` that makes new frames does not change the result.

This module uses the events of LiveKit's outputs, two private names of LiveKit in
`Listener.of_this_task`, and the names of two of its tasks in `_is_unheard`. Without the first two,
LiveKit's own text stays.
"""

import asyncio
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from livekit.agents.voice import io

from voiceagent_tts.adapters.turn import TurnWord, WholeCharacters, audible_at, heard_samples
from voiceagent_tts.core import SAMPLE_RATE_HZ, PlayoutClock, ms_to_samples

if TYPE_CHECKING:
    from livekit.agents import AgentSession, AgentStateChangedEvent
    from livekit.agents.voice.speech_handle import SpeechHandle

_TOLERANCE_SAMPLES = ms_to_samples(50)
"""Tolerance for outputs that round, drop ends, play in blocks, or report a start or a pause
late."""


class Playout:
    """One reply's words and audio, and which of them were heard.

    Positions are samples at 24 kHz and characters of the reply's text; times are passed in, as
    `time.monotonic()` seconds.

    Args:
        latency_s: time between LiveKit playing audio and the listener hearing it.
    """

    def __init__(self, latency_s: float) -> None:
        self.text = ""
        """The reply's text so far."""
        self.is_complete = False
        """Whether all of the text was spoken."""
        self.words: list[TurnWord] = []
        """The words whose audio has begun to arrive, in order."""
        self._latency_s = latency_s
        self._clock = PlayoutClock()
        self.awaits_start = False
        """Whether the listener has heard nothing yet, and the output will report the start."""
        self._has_started = False
        self._paused_at: float | None = None

    @property
    def samples(self) -> int:
        """Audio passed to LiveKit so far."""
        return self._clock.sent_samples

    @property
    def underrun_s(self) -> float:
        """Silence within the reply, while no audio had arrived and the listener could hear."""
        return 0.0 if self.awaits_start else self._clock.underrun_s

    def left_s(self, now: float) -> float:
        """How long the listener still has audio to hear."""
        if self.awaits_start:
            return self.samples / SAMPLE_RATE_HZ
        return self._clock.lead_s(self._playing_at(now))

    def play(self, samples: int, now: float) -> None:
        """Count audio that is passed to LiveKit."""
        self._clock.send(samples, self._playing_at(now))

    def start(self, started_at: float) -> None:
        """Playback has started, at `started_at`, with all audio so far."""
        if not self._has_started:
            self._has_started, self.awaits_start = True, False
            self._clock.playout_end = started_at + self.samples / SAMPLE_RATE_HZ
            self._clock.underrun_s = 0.0

    def pause(self, now: float) -> None:
        """Playback has been paused."""
        if self._has_started and self._paused_at is None:
            self._paused_at = now

    def resume(self, now: float) -> None:
        """Playback resumes where it was paused."""
        if self._paused_at is not None:
            self._clock.playout_end += now - self._paused_at
            self._paused_at = None

    def _playing_at(self, now: float) -> float:
        """The time by the listener's clock, which stands still while playback is paused."""
        return now if self._paused_at is None else self._paused_at

    @property
    def char_end(self) -> int:
        """End of the last word."""
        return self.words[-1].char_end if self.words else 0

    def forget_unheard(self) -> None:
        """Drop the words whose audio never comes: they turned out to be later than they seemed."""
        while self.words and audible_at(self.words[-1].start_sample) > self.samples:
            self.words.pop()

    def forget_after(self, char_end: int) -> None:
        """Drop the words after `char_end`: the server sent noise in their place."""
        self.words = [word for word in self.words if word.char_end <= char_end]

    def possible_s(self, played_s: float, now: float) -> float:
        """How much can have been heard of what an output has measured as played until `now`.

        An output may count a pause, or its own delay before the first sample, so this is limited to
        about the time that has passed.
        """
        if not self._has_started:
            return played_s
        possible = self._clock.played_samples(self._playing_at(now)) + _TOLERANCE_SAMPLES
        return min(played_s, possible / SAMPLE_RATE_HZ)

    def heard_text(self, played_s: float) -> str:
        """The reply's text up to the last word of which enough was heard, in `played_s`."""
        heard = heard_samples(round(played_s * SAMPLE_RATE_HZ), self._latency_s)
        if self.is_complete and self.samples - heard < _TOLERANCE_SAMPLES:
            return self.text
        ends = [word.char_end for word in self.words if audible_at(word.begun_at) <= heard]
        return self.text[: max(ends, default=0)]


@dataclass(frozen=True, slots=True)
class Listener:
    """The session and the speech that a reply belongs to, and the output that plays it."""

    session: "AgentSession[Any]"
    speech: "SpeechHandle"
    output: io.AudioOutput

    @classmethod
    def of_this_task(cls) -> "Listener | None":
        """The listener of the stream that the current task opens; None if the session hears none.

        LiveKit offers plugins no public way to find their session.
        """
        if _is_unheard(asyncio.current_task()):
            return None
        try:
            from livekit.agents.voice.agent_activity import (
                _AgentActivityContextVar,
                _SpeechHandleContextVar,
            )

            session = _AgentActivityContextVar.get().session
            speech, output = _SpeechHandleContextVar.get(), session.output.audio
        except (ImportError, LookupError, AttributeError):
            return None
        return None if output is None else cls(session, speech, output)

    def hear(self, playout: Playout) -> None:
        """Play `playout` after the other replies of its speech."""
        playout.awaits_start = True
        _playouts.setdefault(self.speech, deque()).append(playout)
        if self.output not in _watches:
            _watches[self.output] = _Watch(self.output)
        _watches[self.output].follow(self.session)


def is_probe(task: "asyncio.Task[Any] | None") -> bool:
    """Whether `task` is a `FallbackAdapter`'s that tries a TTS again: its audio is not played.

    It runs in the context of the reply that another TTS speaks.
    """
    return task is not None and "_recover_tts_task" in getattr(task.get_coro(), "__qualname__", "")


def _is_unheard(task: "asyncio.Task[Any] | None") -> bool:
    """Whether what `task` speaks is no reply of the session whose context it runs in.

    A function tool runs in the context of the reply that follows it, and may play what it speaks on
    another output. What it passes to `session.say` is spoken by another task.
    """
    return is_probe(task) or (task is not None and task.get_name().startswith("tool_exec_"))


_playouts: "weakref.WeakKeyDictionary[SpeechHandle, deque[Playout]]" = weakref.WeakKeyDictionary()
"""The replies of each speech that have not ended, in the order in which they play."""


class _Watch:
    """Tracks one output for its lifetime: which reply it plays, and how far."""

    def __init__(self, output: io.AudioOutput) -> None:
        self._session: Callable[[], AgentSession[Any] | None] = lambda: None
        self._progress_s = 0.0  # of the current reply; 0 where the output does not report it
        self._output = weakref.ref(output)  # this watch is kept as long as the output
        output.on("playback_started", self._start)
        output.on("playback_progressed", self._progress)
        output.on("playback_finished", self._finish)

    def follow(self, session: "AgentSession[Any]") -> None:
        """The output plays the replies of `session`."""
        if self._session() is not session:
            self._session = weakref.ref(session)
            session.on("agent_state_changed", self._pause_or_resume)

    @property
    def _playing(self) -> deque[Playout]:
        session = self._session()
        speech = session.current_speech if session else None
        return _playouts.get(speech, deque()) if speech else deque()

    def _start(self, event: io.PlaybackStartedEvent) -> None:
        self._progress_s = 0.0
        if playing := self._playing:
            age_s = time.time() - event.created_at
            playing[0].start(time.monotonic() - age_s)

    def _pause_or_resume(self, event: "AgentStateChangedEvent") -> None:
        output = self._output()
        if output is None or not _pauses(output) or not (playing := self._playing):
            return
        if event.new_state == "listening":
            playing[0].pause(time.monotonic())
        elif event.new_state == "speaking":
            playing[0].resume(time.monotonic())

    def _progress(self, event: "io.PlaybackProgressedEvent") -> None:
        # After a pause the output skips what it had queued, which `playback_position` leaves out.
        # LiveKit never revises this, so it needs no limit.
        self._progress_s = event.offset + event.duration

    def _finish(self, event: io.PlaybackFinishedEvent) -> None:
        progress_s, self._progress_s = self._progress_s, 0.0
        playing = self._playing
        if not playing:
            return
        if event.synchronized_transcript:  # without alignment, LiveKit shows the LLM's own tokens
            event.synchronized_transcript = WholeCharacters().add(event.synchronized_transcript)
        shown = (event.synchronized_transcript or "").rstrip()
        # What a task beside the reply's speaks, and plays elsewhere, may stand before it.
        playout = next((each for each in playing if each.text.startswith(shown)), playing[0])
        while playing.popleft() is not playout:
            pass
        if event.interrupted:
            playing.clear()
        # A `transcription_node` or a text transform may have changed what is shown and committed.
        if playout.text.startswith(shown):
            played_s = playout.possible_s(event.playback_position, time.monotonic())
            event.synchronized_transcript = playout.heard_text(progress_s or played_s)


def _pauses(output: io.AudioOutput) -> bool:
    """Whether `output` really pauses: that of the remote console claims it and plays on."""
    while output.next_in_chain is not None:
        output = output.next_in_chain
    return output.can_pause and type(output).pause is not io.AudioOutput.pause


_watches: "weakref.WeakKeyDictionary[io.AudioOutput, _Watch]" = weakref.WeakKeyDictionary()
