"""Simulated playout of one context: audio at a real-time factor, word times, and barge-ins.

Runs the product's own clocks and words in simulated time: the first frame is sent at
once, playout is re-anchored on every frame, and a word is sent when the policy allows it. This
module knows no voice, and aligners only by their interface.
"""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count

from testbed.heard_words import words_timed_by_caller
from testbed.known_speech import KnownSpeech
from voiceagent_tts.aligner.online.aligner import OnlineSession
from voiceagent_tts.audio.listener_clock import ListenerClock
from voiceagent_tts.core import (
    BYTES_PER_SAMPLE,
    FRAME_S,
    FRAME_SAMPLES,
    AudioChunk,
    PlayoutClock,
    Segment,
    Word,
    WordTimestamp,
)
from voiceagent_tts.synthesizer.events import Source
from voiceagent_tts.text.words import split_words
from voiceagent_tts.word_times.aligners import VoiceLevels

BARGE_IN_S = 0.13
_MAX_LEAD_S = 8.0
"""Maximum lead of generated audio over playout, as in the server's settings."""
_ONLINE_S = 0.005
"""Delay from a frame to the online aligner's answer."""


@dataclass(frozen=True, slots=True)
class BargeIn:
    """The state of playout when the listener interrupts.

    Attributes:
        played_samples: samples of the context that were heard.
        words: number of words that have begun, by the best word times sent so far.
    """

    played_samples: int
    words: int


@dataclass(slots=True)
class Playback:
    """What the listener of one context received.

    Attributes:
        barge_ins: one every 130 ms.
        words: words in the order in which they were sent, with the times that they had then.
        late: number of words whose start had been played before they were sent.
    """

    barge_ins: list[BargeIn] = field(default_factory=list[BargeIn])
    words: list[WordTimestamp] = field(default_factory=list[WordTimestamp])
    late: int = 0


def play(
    spoken: KnownSpeech, rtf: float, session: OnlineSession, levels: VoiceLevels | None = None
) -> Playback:
    """Generate `spoken` at a real-time factor, play it, and interrupt it every 130 ms.

    Args:
        spoken: the context; all of its text is known from the beginning.
        rtf: seconds to generate a second of audio.
        session: session of the online aligner.
        levels: how loud the speakers of earlier contexts were; None for a voice that is unknown.
    """
    return _Simulation(spoken, rtf, session, levels or VoiceLevels()).run()


class _Simulation:
    """A discrete-event simulation of one context; arguments as for `play`."""

    def __init__(
        self, spoken: KnownSpeech, rtf: float, session: OnlineSession, levels: VoiceLevels
    ) -> None:
        self._spoken, self._rtf, self._session, self._levels = spoken, rtf, session, levels
        self._clock = PlayoutClock()
        self._listener = ListenerClock()
        level = levels.level_of(spoken.speaker)
        self._words = words_timed_by_caller(self._clock, self._listener, {Source.ONLINE}, level)
        self._policy = self._words.policy
        self._playback = Playback()
        self._told: dict[Word, int] = {}
        """Start of each word that was sent, by the last time of it that was sent."""
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = count()
        self._made_samples = 0

    def run(self) -> Playback:
        self._words.expect(Segment(self._spoken.text, 0), is_whole=True)
        self._session.append(split_words(self._spoken.text))
        self._at(0.0, self._generate_frame)
        self._at(BARGE_IN_S, self._interrupt)
        while self._events:
            now, _, action = heapq.heappop(self._events)
            action(now)
            self._send_words(now)
        self._levels.add(self._spoken.speaker, self._policy.speech_clock.level)
        return self._playback

    def _at(self, time: float, action: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (time, next(self._order), action))

    def _generate_frame(self, now: float) -> None:
        start = self._made_samples
        end = min(start + FRAME_SAMPLES, self._spoken.samples)
        pcm = self._spoken.pcm[start * BYTES_PER_SAMPLE : end * BYTES_PER_SAMPLE]
        self._made_samples = end
        chunk = AudioChunk(start, pcm)
        self._words.push_audio(chunk, lambda: "en")
        self._listener.push_audio(chunk)
        self._send_words(now)
        self._clock.send(end - start, now)
        is_last = end == self._spoken.samples
        self._align_frame(pcm, now, is_last=is_last)
        if is_last:
            self._words.end_audio(now)
        else:
            wait_s = self._clock.lead_s(now) + FRAME_S - _MAX_LEAD_S
            self._at(now + max(self._rtf * FRAME_S, wait_s), self._generate_frame)

    def _align_frame(self, pcm: bytes, now: float, *, is_last: bool) -> None:
        final, tentative = self._session.push(pcm), self._session.tentative()
        if is_last:
            final, tentative = (*final, *self._session.finish()), ()

        def answer(_: float) -> None:
            self._policy.add_times(Source.ONLINE, final)
            self._policy.set_tentative(tentative)
            self._tell(self._words.pop_moved())
            if is_last:
                self._policy.drop_source(Source.ONLINE)

        self._at(now + _ONLINE_S, answer)

    def _send_words(self, now: float) -> None:
        """Send the words that are due, and schedule the next time."""
        played = self._clock.played_samples(now)
        for word in self._words.pop_due(now):
            self._playback.late += word.start_sample < played
            self._playback.words.append(word)
            self._tell((word,))
        due = self._words.due_at
        if due is not None and due > now:
            self._at(due, lambda _: None)

    def _tell(self, words: Iterable[WordTimestamp]) -> None:
        self._told.update((timestamp.word, timestamp.start_sample) for timestamp in words)

    def _interrupt(self, now: float) -> None:
        played = self._clock.played_samples(now)
        words = sum(start_sample <= played for start_sample in self._told.values())
        self._playback.barge_ins.append(BargeIn(played, words))
        if played < self._spoken.samples:
            self._at(now + BARGE_IN_S, self._interrupt)
