"""One context as its listener has it: audio that is made at some pace, words, and barge-ins.

The product's own clock, timeline and policy, in simulated time: the first frame is sent at once,
playback is re-anchored on every frame, and a word leaves when the policy lets it. This module knows
no voice and no aligner beyond the seam.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

from testbed.known_speech import Spoken
from voiceagent_tts.aligner.interface import AlignSession
from voiceagent_tts.core import (
    BYTES_PER_SAMPLE,
    FRAME_S,
    FRAME_SAMPLES,
    AudioChunk,
    PlayoutClock,
    WordTimestamp,
)
from voiceagent_tts.synthesizer.timeline import Timeline
from voiceagent_tts.synthesizer.word_policy import Source

BARGE_IN_S = 0.13
_MAX_LEAD_S = 8.0
"""The server's own setting: no frame is made so long before it can be heard."""
_ONLINE_S = 0.005
"""From a frame to the online aligner's answer."""
FORCED_S = 0.06
"""From the end of the audio to the forced aligner's."""


@dataclass(frozen=True, slots=True)
class BargeIn:
    """What was heard when the listener interrupted.

    Attributes:
        now_s: when, from the moment at which the first frame was made.
        played_samples: how much of the context was heard.
        words: how many had begun by the times that had arrived.
    """

    now_s: float
    played_samples: int
    words: int


@dataclass(slots=True)
class Playback:
    """A context from its listener's side."""

    barge_ins: list[BargeIn] = field(default_factory=list[BargeIn])
    words: list[WordTimestamp] = field(default_factory=list[WordTimestamp])
    late: int = 0
    """Words whose time lay behind what had been played when they left."""
    made_s: float = 0.0
    """When the last frame was made."""


def play(
    spoken: Spoken,
    rtf: float,
    session: AlignSession | None,
    forced: Sequence[WordTimestamp] = (),
) -> Playback:
    """Make `spoken` at `rtf`, send it, and interrupt it every 130 ms.

    Args:
        spoken: the context; all of its text is there from the beginning.
        rtf: seconds that it takes to make a second of it.
        session: the online aligner's; None without one.
        forced: what the forced aligner says when all audio is there; empty without one.
    """
    return _Simulation(spoken, rtf, session, forced).run()


class _Simulation:
    def __init__(
        self,
        spoken: Spoken,
        rtf: float,
        session: AlignSession | None,
        forced: Sequence[WordTimestamp],
    ) -> None:
        sources = {Source.ONLINE} if session is not None else set[Source]()
        sources |= {Source.FORCED} if forced else set()
        self._spoken, self._rtf, self._session, self._forced = spoken, rtf, session, forced
        self._timeline = Timeline(1.0, sources)
        self._clock = PlayoutClock()
        self._playback = Playback()
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = count()
        self._made_samples = 0

    def run(self) -> Playback:
        words = self._timeline.expect_text(self._spoken.text, is_whole=True)
        if self._session is not None:
            self._session.append(words)
        self._at(0.0, self._make_frame)
        self._at(BARGE_IN_S, self._interrupt)
        while self._events:
            now, _, happen = heapq.heappop(self._events)
            happen(now)
            self._take(now)
        return self._playback

    def _at(self, time: float, happen: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (time, next(self._order), happen))

    def _make_frame(self, now: float) -> None:
        start, end = (
            self._made_samples,
            min(self._made_samples + FRAME_SAMPLES, self._spoken.samples),
        )
        pcm = self._spoken.pcm[start * BYTES_PER_SAMPLE : end * BYTES_PER_SAMPLE]
        self._made_samples = end
        self._timeline.push_audio(AudioChunk(start, pcm))
        self._take(now)
        self._clock.send(end - start, now)
        is_last = end == self._spoken.samples
        if self._session is not None:
            self._follow(self._session, pcm, now, is_last=is_last)
        if is_last:
            self._playback.made_s = now
            self._timeline.end_audio()
            self._at(now + FORCED_S, self._tell_forced)
        else:
            waits_s = self._clock.lead_s(now) + FRAME_S - _MAX_LEAD_S
            self._at(now + max(self._rtf * FRAME_S, waits_s), self._make_frame)

    def _follow(self, session: AlignSession, pcm: bytes, now: float, *, is_last: bool) -> None:
        committed, tentative = session.push(pcm), session.tentative()
        if is_last:
            committed, tentative = (*committed, *session.finish()), ()

        def answer(_: float) -> None:
            self._timeline.add_times(Source.ONLINE, committed)
            self._timeline.set_tentative(tentative)
            if is_last:
                self._timeline.drop_source(Source.ONLINE)

        self._at(now + _ONLINE_S, answer)

    def _tell_forced(self, now: float) -> None:
        self._timeline.add_times(Source.FORCED, tuple(self._forced))
        self._timeline.drop_source(Source.FORCED)

    def _take(self, now: float) -> None:
        """What leaves now; comes again when the next word is due."""
        played = self._clock.played_samples(now)
        for word in self._timeline.pop_due(self._clock, now):
            self._playback.late += word.start_sample < played
            self._playback.words.append(word)
        due = self._timeline.next_due_at(self._clock)
        if due is not None and due > now:
            self._at(due, lambda _: None)

    def _interrupt(self, now: float) -> None:
        played = self._clock.played_samples(now)
        words = sum(word.start_sample <= played for word in self._playback.words)
        self._playback.barge_ins.append(BargeIn(now, played, words))
        if played < self._spoken.samples:
            self._at(now + BARGE_IN_S, self._interrupt)
