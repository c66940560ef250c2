"""What is asked in a turn, who answers, and which events of a host end its stages.

This module knows no host.
"""

from dataclasses import dataclass

from voiceagent_tts.audio.levels import leading_silence_samples
from voiceagent_tts.core import BYTES_PER_SAMPLE
from voiceagent_tts.plugins.bench.stage_clock import Stage, StageClock
from voiceagent_tts.plugins.bench.targets.classes import ServiceClass

MICROPHONE_RATE_HZ = 16_000
"""Sample rate of the user's speech."""
ANSWER_S = 20.0
"""Longest wait for the answer to a question."""
PAUSE_S = 0.4
"""Silence between an answer that is cut off and the next question."""


@dataclass(frozen=True, slots=True)
class Services:
    """What the agent consists of; None for a stand-in."""

    tts: ServiceClass
    stt: ServiceClass | None = None
    llm: ServiceClass | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """What the user says: text, its PCM16 at 16 kHz, and the scripted answer."""

    text: str
    pcm: bytes
    answer: str

    @property
    def sound_s(self) -> float:
        """Seconds from its first sample to its last audible one."""
        backwards = b"".join(
            self.pcm[at : at + BYTES_PER_SAMPLE]
            for at in range(len(self.pcm) - BYTES_PER_SAMPLE, -1, -BYTES_PER_SAMPLE)
        )
        samples = len(self.pcm) // BYTES_PER_SAMPLE
        return (samples - leading_silence_samples(backwards)) / MICROPHONE_RATE_HZ

    @property
    def patience_s(self) -> float:
        """Seconds from its first sample after which an answer is missing."""
        return len(self.pcm) / BYTES_PER_SAMPLE / MICROPHONE_RATE_HZ + ANSWER_S


class TurnEvents:
    """Ends the stages of a turn on a host's events, in whichever order the host reports them.

    A transcript may be complete before voice activity detection reports the end of speech: a
    transcriber that streams needs no end. Its stage then takes no time.
    """

    def __init__(self, clock: StageClock) -> None:
        self._clock = clock
        self._speech_ended_at_s = 0.0
        self._is_vad_over = self._is_transcribed = False

    def start_turn(self, speech_ended_at_s: float) -> None:
        """The user's speech ends, or will end, at this time."""
        self._speech_ended_at_s = speech_ended_at_s
        self._is_vad_over = self._is_transcribed = False
        self._clock.start_turn(speech_ended_at_s)

    def speech_ended(self, at_s: float) -> None:
        """Voice activity detection has reported the end of speech; a pause in it does not count."""
        if at_s < self._speech_ended_at_s:
            return
        self._is_vad_over = True
        self._clock.end_stage(Stage.VAD, at_s)
        if self._is_transcribed:
            self._clock.end_stage(Stage.STT, at_s)

    def transcribed(self, at_s: float) -> None:
        """A transcript is complete."""
        self._is_transcribed = True
        if self._is_vad_over:
            self._clock.end_stage(Stage.STT, at_s)

    def token_written(self, at_s: float) -> None:
        """A token of the language model has reached the voice."""
        self._clock.end_stage(Stage.LLM, at_s)

    def heard(self, at_s: float) -> None:
        """The first audible sample of the answer was played."""
        self._clock.end_stage(Stage.TTS, at_s)
