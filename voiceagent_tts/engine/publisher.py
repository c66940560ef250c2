"""Sends the audio of each step, and ends the sequences and contexts that are finished.

A sequence ends when its last frame has become audio, when it has lost its text, or when its row is
out of memory. A context ends with its last sequence, with an error, or when it is dropped.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import NoReturn

import torch

from voiceagent_tts.audio.levels import frame_peaks
from voiceagent_tts.core import BYTES_PER_SAMPLE, FRAME_SAMPLES, AudioChunk
from voiceagent_tts.engine.metrics import Counts
from voiceagent_tts.engine.runner import Runner, Sound
from voiceagent_tts.engine.scheduler import Scheduler
from voiceagent_tts.engine.sequence import ActiveSequence, EngineContext, SequenceState, TextState
from voiceagent_tts.engine.text_queue import OpenContext
from voiceagent_tts.errors import EngineError, ErrorCode, VoiceAgentError
from voiceagent_tts.seam.engine import Outbox
from voiceagent_tts.seam.events import AudioStep, ContextAudio, Done, Failed, SegmentEnd
from voiceagent_tts.seam.failing import failing

_SILENCE = 33  # of 32,767: -60 dBFS
_FRAME_BYTES = FRAME_SAMPLES * BYTES_PER_SAMPLE
_LOST_TEXT = (
    "the model lost the text: it went on for longer than the text takes, or repeated itself; "
    "try again, with another seed if one is set"
)
_NO_SOUND = "the model made no sound of a text, twice; try again, with another seed if one is set"


def failing_in_engine(
    contexts: Iterable[int], fail: Callable[[int, VoiceAgentError], None]
) -> AbstractContextManager[None]:
    """Turn an error into the failure of `contexts`, unless it is one of the device.

    After such an error a device computes nothing more. The process ends, and another one starts.
    """
    return failing("the engine", contexts, fail, unless=(torch.AcceleratorError,))


class Publisher:
    """Sends the audio and the ends of contexts, and removes those that have ended."""

    def __init__(
        self,
        outbox: Outbox,
        contexts: dict[int, OpenContext],
        scheduler: Scheduler,
        runner: Runner,
        counts: Counts,
        clock: Callable[[], float],
    ) -> None:
        self._outbox = outbox
        self._contexts = contexts
        self._scheduler = scheduler
        self._runner = runner
        self._counts = counts
        self._clock = clock
        self._sounding: dict[int, EngineContext] = {}
        """Contexts whose audio was sent since `end_finished`."""

    def send(self, sounds: Sequence[Sound]) -> None:
        """Send audio of any rows in one message. Nothing ends but what fails."""
        if not sounds:
            return
        by_row = {c.active.row: c for c in self._contexts.values() if c.active}
        sounds = [sound for sound in sounds if sound.row in by_row]  # others failed in this step
        self._sounding |= {by_row[sound.row].id: by_row[sound.row] for sound in sounds}
        now = self._clock()
        audio = [self._audio_of(by_row[sound.row], sound, now) for sound in sounds]
        if rows := tuple(row for row in audio if row is not None):
            self._outbox(AudioStep(rows))

    def end_finished(self, stepped: Sequence[EngineContext]) -> None:
        """End finished sequences and contexts among those that took part in a step or had audio."""
        ending = {context.id: context for context in stepped} | self._sounding
        self._sounding = {}
        for context in ending.values():
            with self.failing(context.id):
                self._end_if_finished(context)

    def skip_silent_text(self, context: EngineContext) -> None:
        """Skip sequences without anything to speak, and end a context that has spoken all."""
        while context.active is None and context.sequences:
            sequence = context.current
            if sequence.is_open or sequence.text_ids > 0:
                return
            self._end_text(context)
        if not context.sequences and not context.expects_text:
            self._outbox(Done(context.id, context.clock.sent_samples))
            self.drop(context)

    def failing(self, id: int) -> AbstractContextManager[None]:
        """Turn an error into the failure of this context; the others continue."""
        return failing_in_engine((id,), self._fail)

    def fail_for_memory(self, context: EngineContext) -> None:
        """Fail a context for whose row no page is left; it can be tried again."""
        contexts = self._contexts.values()
        self._fail(context.id, self._scheduler.refusal(contexts, "the memory of all rows is full"))

    def _fail(self, id: int, error: VoiceAgentError) -> None:
        if context := self._contexts.get(id):
            self.drop(context)
        self._outbox(Failed(id, error.code, error.message, error.retry_after_ms))

    def drop(self, context: EngineContext) -> None:
        """Free the row of a context, and forget the context."""
        if context.active is not None:
            self._free_row(context)
        del self._contexts[context.id]

    def _audio_of(self, context: EngineContext, sound: Sound, now: float) -> ContextAudio | None:
        with self.failing(context.id):
            return self._receive_sound(context, sound, now)

    def _receive_sound(
        self, context: EngineContext, sound: Sound, now: float
    ) -> ContextAudio | None:
        active, sequence = context.active, context.current
        assert active is not None
        if active.state is SequenceState.LOST:  # an earlier sound of this step was noise
            return None
        active.decoding_frames -= sound.frames
        silences = _record_silences(context, active, sound.pcm)
        pcm = sound.pcm[: len(silences) * _FRAME_BYTES]
        is_stillborn = active.has_ended and sequence.detector.never_spoke
        will_retry = is_stillborn and not sequence.has_sound and not sequence.is_retried
        if will_retry or (all(silences) and not context.has_spoken):
            context.hold_silence(pcm)
            return None
        sequence.has_sound |= not all(silences)
        if not context.has_spoken:
            pcm = context.first_audio(pcm, silences.index(False) * _FRAME_BYTES)
        chunk = AudioChunk(context.clock.sent_samples, pcm)
        gap_s = context.record_sent(chunk.samples, now)
        if gap_s > 0 and not context.is_batch:
            self._counts.underruns += 1
            self._counts.underrun_seconds += gap_s
        return ContextAudio(context.id, chunk)

    def _end_if_finished(self, context: EngineContext) -> None:
        """End a sequence whose last frame has become audio, or that has lost its text."""
        active = context.active
        if active is None:  # it was refused, or waits for pages
            return
        sequence = context.current
        if active.state is SequenceState.LOST:
            self._lose_text(_LOST_TEXT)
        if sequence.detector.is_silent_for_long(has_spoken=sequence.has_sound):
            if not active.has_ended:
                active.state = SequenceState.ENDED
            if not sequence.has_sound:
                self._end_sequence(context, active)
                return
        if active.has_ended and not active.pending_frames:
            self._end_sequence(context, active)

    def _end_sequence(self, context: EngineContext, active: ActiveSequence) -> None:
        if active.state is SequenceState.OUT_OF_MEMORY:
            self.fail_for_memory(context)
            return
        self._free_row(context)
        sequence = context.current
        if sequence.has_sound:
            self._end_text(context)
            self.skip_silent_text(context)
        elif not sequence.is_retried:
            context.retry()
        else:
            self._lose_text(_NO_SOUND)

    def _lose_text(self, problem: str) -> NoReturn:
        self._counts.lost_texts += 1
        raise EngineError(problem, code=ErrorCode.TEXT_LOST)

    def _end_text(self, context: EngineContext) -> None:
        sequence = context.sequences.popleft()
        sequence.text = TextState.ENDED
        context.waited_for_text = not context.has_text_to_start
        self._outbox(SegmentEnd(context.id, sequence.char_end, context.clock.sent_samples))

    def _free_row(self, context: EngineContext) -> None:
        assert context.active is not None
        self._runner.cancel(context.active.row)
        self._scheduler.memory.release(context, self._contexts.values())


def _record_silences(context: EngineContext, active: ActiveSequence, pcm: bytes) -> list[bool]:
    """Record whether each frame is silent, up to the one at which the text is lost; return that."""
    sequence, silences = context.current, list[bool]()
    for peak in frame_peaks(pcm):
        silences.append(peak < _SILENCE)
        sequence.detector.add_audio(is_silent=silences[-1])
        if not active.has_ended and sequence.detector.makes_noise(sequence.max_frames):
            active.state = SequenceState.LOST
            break
    return silences
