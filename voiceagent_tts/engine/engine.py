"""Qwen3-TTS at the engine's seam: text in, audio out, one frame of every row at a step.

A context's text becomes sequences, each spoken by one run of the talker; they follow each other in
the same voice and seed, on one clock. Token feeding starts with the first words and takes the rest
as it is written; a row that has no text waits. A row without credit is not stepped. Word times are
not known here. This module knows no sockets and no users; one thread uses it.
"""

import array
import contextlib
import itertools
import secrets
from collections.abc import Iterator

from voiceagent_tts.core import (
    Append,
    AudioChunk,
    AudioStep,
    Cancel,
    Cancelled,
    Capabilities,
    Command,
    ContextAudio,
    Credit,
    Done,
    Failed,
    Flush,
    Inbox,
    Outbox,
    Prepare,
    SegmentEnd,
    Submit,
)
from voiceagent_tts.engine import scheduler
from voiceagent_tts.engine.reader import Reader
from voiceagent_tts.engine.runner import Made, Runner
from voiceagent_tts.engine.sequence import Sequence, Speaker
from voiceagent_tts.engine.voices import Shelved, VoiceShelf
from voiceagent_tts.errors import (
    ErrorCode,
    InvalidRequestError,
    OverloadedError,
    VoiceAgentError,
)
from voiceagent_tts.model.checkpoint import Checkpoint
from voiceagent_tts.model.codec_state import CodecState
from voiceagent_tts.model.generate import frame_cap
from voiceagent_tts.model.prompt import LANGUAGE_CODES, Cloned, PromptBuilder
from voiceagent_tts.model.sampling import sampling_params

_SILENCE = 33  # of 32,767: -60 dBFS


class Qwen3Engine:
    """Implements `core.Engine` over one model on one device.

    Args:
        inbox: where commands come from.
        outbox: where events go.
        checkpoint: the model.
        runner: its rows.
        shelf: its voices.
        name: of the model, for people.
    """

    def __init__(
        self,
        inbox: Inbox,
        outbox: Outbox,
        checkpoint: Checkpoint,
        runner: Runner,
        shelf: VoiceShelf,
        name: str,
    ) -> None:
        self._inbox = inbox
        self._outbox = outbox
        self._config = checkpoint.config
        self._generation = checkpoint.generation
        self._tokenizer = checkpoint.tokenizer
        self._builder = PromptBuilder(checkpoint.config, checkpoint.tokenizer)
        self._runner = runner
        self._shelf = shelf
        self._name = name
        self._max_rows = len(runner.free_rows)
        self._speakers: dict[int, Speaker] = {}
        self._readers: dict[int, Reader] = {}
        self._voices: dict[int, Shelved] = {}  # a context keeps its voice when that is replaced
        self._arrivals = itertools.count()

    @property
    def capabilities(self) -> Capabilities:
        """What this engine can do."""
        known = self._config.talker_config.codec_language_id
        return Capabilities(
            engine="qwen3",
            model=self._name,
            has_native_words=False,
            text_feeding=("token", "segment"),
            languages=tuple(code for code, name in LANGUAGE_CODES.items() if name in known),
            voices=self._shelf.names(),
            max_rows=self._max_rows,
            needs_instruct=self._config.tts_model_type == "voice_design",
            speaks_clones=self._config.tts_model_type == "base",
        )

    @property
    def rows_used(self) -> int:
        """Contexts that hold a row, or wait for their next text with one reserved."""
        return len(self._speakers)

    def step(self) -> float | None:
        """Take commands, start at most one sequence, make one frame of every row that may."""
        self._take_commands()
        self._start_one()
        self._feed_rows()
        made = self._runner.step(scheduler.rows_to_step(self._speakers.values()))
        self._publish(made)
        return 0.0 if made or self._next_to_start() is not None else None

    def close(self) -> None:
        """Drop every context; idempotent."""
        for speaker in list(self._speakers.values()):
            self._drop(speaker)

    # Commands.

    def _take_commands(self) -> None:
        for command in self._inbox():
            self._take(command)

    def _take(self, command: Command) -> None:
        match command:
            case Submit():
                with self._failing(command.context):
                    self._submit(command)
            case Append():
                with self._failing(command.context):
                    self._append(command)
            case Flush(context) if context in self._readers:
                self._readers[context].end()
                self._skip_silent_text(self._speakers[context])
            case Cancel(context):
                if context in self._speakers:
                    self._drop(self._speakers[context])
                self._outbox(Cancelled(context))
            case Credit(context) if context in self._speakers:
                self._speakers[context].take_credit(command)
            case Prepare():
                with contextlib.suppress(VoiceAgentError):
                    self._primed(self._shelf.find(command.voice, command.instruct))
            case _:
                pass  # of a context that ended before its sender knew

    def _submit(self, command: Submit) -> None:
        if len(self._speakers) >= self._max_rows:
            raise OverloadedError(f"all {self._max_rows} rows of {self._name} are in use")
        voice = self._shelf.find(command.voice, command.instruct)
        speaker = Speaker(
            command.context,
            command.language,
            command.instruct,
            secrets.randbits(32) if command.seed is None else command.seed,
            next(self._arrivals),
        )
        self._speakers[command.context] = speaker
        self._voices[command.context] = voice
        self._readers[command.context] = Reader(
            self._tokenizer, command.feeding, command.language, speaker.sequences
        )
        self._write(speaker, command)

    def _append(self, command: Append) -> None:
        speaker = self._speakers.get(command.context)
        if speaker is not None:
            self._write(speaker, command)

    def _write(self, speaker: Speaker, command: Submit | Append) -> None:
        if not speaker.expects_text:
            raise InvalidRequestError(
                f"context {speaker.context} was told that no text follows, but text came",
                code=ErrorCode.CONTEXT_CLOSED,
            )
        reader = self._readers[speaker.context]
        reader.write(command.text, command.char_base)
        if not command.more:
            speaker.expects_text = False
            reader.end()
        self._skip_silent_text(speaker)

    @contextlib.contextmanager
    def _failing(self, context: int) -> Iterator[None]:
        """What goes wrong with one context ends that one alone."""
        try:
            yield
        except VoiceAgentError as error:
            if context in self._speakers:
                self._drop(self._speakers[context])
            self._outbox(Failed(context, error.code, error.message))

    # Sequences.

    def _next_to_start(self) -> Speaker | None:
        """The most urgent context whose next sequence has enough text to begin."""
        waiting = scheduler.next_to_start(self._speakers.values())
        return next(filter(self._is_startable, waiting), None)

    def _start_one(self) -> None:
        """Prefill the most urgent sequence; one a step, so that rows that speak wait for one."""
        speaker = self._next_to_start()
        if speaker is not None:
            with self._failing(speaker.context):
                self._start(speaker, speaker.sequences[0])

    def _is_startable(self, speaker: Speaker) -> bool:
        sequence = speaker.sequences[0]
        if not sequence.is_open:
            return True
        voice = self._voices[speaker.context].voice
        return len(sequence.ids) >= self._builder.ids_to_start(voice)

    def _start(self, speaker: Speaker, sequence: Sequence) -> None:
        shelved = self._voices[speaker.context]
        is_open = sequence.is_open
        # Base models were trained on the streaming layout also for whole texts.
        is_streaming = sequence.is_streaming or self._config.tts_model_type == "base"
        prompt = self._builder.build_turn(
            sequence.take_new_ids(),
            shelved.voice,
            speaker.language,
            speaker.instruct or "",
            is_streaming=is_streaming,
            is_open=is_open,
        )
        room = self._runner.capacity - len(prompt)
        if room <= 0:
            raise InvalidRequestError(
                f"the voice and its text take {len(prompt)} positions; a row has "
                f"{self._runner.capacity}",
                code=ErrorCode.TEXT_TOO_LONG,
            )
        max_frames = min(room, self._generation.max_new_tokens)
        row = self._runner.free_rows[0]
        sampling = sampling_params(self._generation, speaker.seed ^ sequence.is_retried)
        primed = self._primed(shelved)
        self._runner.start(row, prompt, sampling, max_frames, is_open=is_open, primed=primed)
        speaker.row = row

    def _primed(self, shelved: Shelved) -> CodecState | None:
        """The codec's state after a clone's reference, computed once a voice."""
        voice = shelved.voice
        if (
            shelved.primed is None
            and isinstance(voice, Cloned)
            and voice.reference_codes is not None
        ):
            shelved.primed = self._runner.prime(voice.reference_codes)
        return shelved.primed

    def _feed_rows(self) -> None:
        for speaker in self._speakers.values():
            if speaker.row is not None:
                sequence = speaker.sequences[0]
                if not sequence.is_fed and (sequence.has_new_ids or not sequence.is_open):
                    ids = sequence.take_new_ids()
                    self._runner.feed(speaker.row, ids, is_last=sequence.is_fed)

    # Audio.

    def _publish(self, made: list[Made]) -> None:
        """Send the step's audio in one message, then what it ended."""
        speakers = {s.row: s for s in self._speakers.values() if s.row is not None}
        audio = [self._hear(speakers[frame.row], frame) for frame in made]
        if rows := tuple(row for row in audio if row is not None):
            self._outbox(AudioStep(rows))
        for frame in made:
            speaker = speakers[frame.row]
            if frame.is_last or self._is_lost(speaker):
                self._end_run(speaker)

    def _hear(self, speaker: Speaker, frame: Made) -> ContextAudio | None:
        """The frame as audio of its context; silence before its first sound is not sent."""
        sequence = speaker.sequences[0]
        is_silent = _is_silent(frame.pcm)
        sequence.watch.take(frame.code, is_silent=is_silent)
        is_too_short = frame.is_last and sequence.watch.is_stillborn and not sequence.is_retried
        if not speaker.has_spoken and (is_silent or is_too_short):
            return None
        chunk = AudioChunk(speaker.end_sample, frame.pcm)
        speaker.end_sample = chunk.end_sample
        return ContextAudio(speaker.context, chunk)

    def _is_lost(self, speaker: Speaker) -> bool:
        sequence = speaker.sequences[0]
        max_frames = None if sequence.is_open else frame_cap(sequence.text_ids)
        return sequence.watch.is_lost(max_frames, has_spoken=speaker.has_spoken)

    def _end_run(self, speaker: Speaker) -> None:
        """Free the row; a run that came to nothing is tried again, as nobody has heard it."""
        assert speaker.row is not None
        self._runner.cancel(speaker.row)
        speaker.row = None
        if not speaker.has_spoken and not speaker.sequences[0].is_retried:
            speaker.sequences[0].retry()
            return
        self._end_text(speaker)
        self._skip_silent_text(speaker)

    def _skip_silent_text(self, speaker: Speaker) -> None:
        """Pass over sequences without anything to say, and end a context that has said all."""
        while speaker.row is None and speaker.sequences:
            sequence = speaker.sequences[0]
            if sequence.is_open or sequence.text_ids > 0:
                return
            self._end_text(speaker)
        if not speaker.sequences and not speaker.expects_text:
            self._outbox(Done(speaker.context, speaker.end_sample))
            self._drop(speaker)

    def _end_text(self, speaker: Speaker) -> None:
        sequence = speaker.sequences.popleft()
        sequence.is_over = True
        self._outbox(SegmentEnd(speaker.context, sequence.char_end, speaker.end_sample))

    def _drop(self, speaker: Speaker) -> None:
        if speaker.row is not None:
            self._runner.cancel(speaker.row)
        for held in (self._speakers, self._readers, self._voices):
            del held[speaker.context]


def _is_silent(pcm: bytes) -> bool:
    samples = array.array("h", pcm)
    return max(samples) < _SILENCE and min(samples) > -_SILENCE
