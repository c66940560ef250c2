"""What a client asks of a server, and what it got: one utterance, with the time of every event.

All times are seconds of one clock, that of the event loop which received the events.
"""

from bisect import bisect_right
from dataclasses import dataclass, field

from voiceagent_tts.audio.levels import leading_silence_samples
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ
from voiceagent_tts.plugins.bench.listener import Playback, play


@dataclass(frozen=True, slots=True)
class Request:
    """An utterance to be spoken.

    Attributes:
        text: the whole text.
        language: its language code.
        pieces: (seconds after the start, characters) of each piece as a language model writes them;
            joined, they are the text. One piece at zero for a text that is known at once.
        barge_in_s: seconds of playback after which the listener interrupts; None to hear it all.
        seed: seed of the voice, for servers that accept one.
    """

    text: str
    language: str = "en"
    pieces: tuple[tuple[float, str], ...] = ()
    barge_in_s: float | None = None
    seed: int = 0

    @property
    def script(self) -> tuple[tuple[float, str], ...]:
        """The pieces; the whole text at once where none are planned."""
        return self.pieces or ((0.0, self.text),)


@dataclass(slots=True)
class Utterance:
    """Measurements of one request.

    Attributes:
        request: what was asked for.
        due: when the request was planned to start; latencies count from here.
        connect_s: time to open the connection; None for one that was open.
        sent: when the first piece of text was sent.
        ended: arrival of the end.
        times: arrival of each piece of audio.
        sizes: samples of each piece at 24 kHz.
        bytes_received: number of bytes of audio.
        silent_samples: silence before the first audible sample, at 24 kHz.
        is_audible: whether an audible sample has arrived.
        words: (arrival, start on the audio's clock in seconds) of each word time.
        cancelled: when the listener interrupted; None without an interruption.
        confirmed: when the server confirmed the cancel; None if it did not.
        bytes_before_cancel: `bytes_received` when the listener interrupted.
        failure: code of the error that ended the utterance.
        retry_after_s: time to wait that this error asks for.
    """

    request: Request
    due: float = 0.0
    connect_s: float | None = None
    sent: float = 0.0
    ended: float = 0.0
    times: list[float] = field(default_factory=list[float])
    sizes: list[int] = field(default_factory=list[int])
    bytes_received: int = 0
    silent_samples: int = 0
    is_audible: bool = False
    words: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    cancelled: float | None = None
    confirmed: float | None = None
    bytes_before_cancel: int = 0
    failure: str | None = None
    retry_after_s: float = 0.0

    def hear(self, pcm: bytes, at: float, rate_hz: int = SAMPLE_RATE_HZ) -> None:
        """Record a piece of PCM16 at `rate_hz` that arrived at `at`."""
        samples, before = len(pcm) // BYTES_PER_SAMPLE, self.bytes_received // BYTES_PER_SAMPLE

        def position(sample: int) -> int:  # of the whole audio: pieces rounded alone add up wrong
            return round(sample * SAMPLE_RATE_HZ / rate_hz)

        if not self.is_audible:
            silent = leading_silence_samples(pcm)
            self.silent_samples = position(before + silent)
            self.is_audible = silent < samples
        self.times.append(at)
        self.sizes.append(position(before + samples) - position(before))
        self.bytes_received += len(pcm)

    def interrupt(self, at: float) -> None:
        """Record the listener's interruption."""
        self.cancelled = at
        self.bytes_before_cancel = self.bytes_received

    @property
    def is_complete(self) -> bool:
        """Whether the whole text was spoken."""
        return self.failure is None and self.cancelled is None

    @property
    def audio_s(self) -> float:
        """Length of the received audio."""
        return sum(self.sizes) / SAMPLE_RATE_HZ

    @property
    def playback(self) -> Playback:
        """Playback of the audio by a player that starts with the first piece."""
        return play(self.times, self.sizes)

    @property
    def heard_playback(self) -> Playback:
        """Playback of what had arrived when the listener interrupted; all of it without that."""
        if self.cancelled is None:
            return self.playback
        count = bisect_right(self.times, self.cancelled)
        return play(self.times[:count], self.sizes[:count])

    def played_s(self, now: float) -> float:
        """Seconds of audio that this player has played at `now`, without underruns."""
        heard = zip(self.playback.starts, self.sizes, strict=True)
        return sum(min(max(0.0, now - start), size / SAMPLE_RATE_HZ) for start, size in heard)

    def heard_at(self, position_s: float) -> float | None:
        """When the player reaches `position_s` of the audio; None if that was never received."""
        before_s = 0.0
        for start, size in zip(self.playback.starts, self.sizes, strict=True):
            length_s = size / SAMPLE_RATE_HZ
            if position_s < before_s + length_s:
                return start + position_s - before_s
            before_s += length_s
        return None
