"""Qwen3-TTS at the engine's seam: text in, audio out, one frame of every row at a step.

A context's text becomes sequences, each spoken by one run of the talker; they follow each other in
the same voice and seed, on one clock. Token feeding starts with the first words and takes the rest
as it is written; a row that has no text waits. Who is served now, and how many frames become sound
together, the scheduler decides; the runner computes. Word times are not known here. This module
knows no sockets and no users; one thread uses it.
"""

import contextlib
import itertools
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator

from voiceagent_tts.audio.levels import frame_peaks
from voiceagent_tts.core import BYTES_PER_SAMPLE, FRAME_SAMPLES, AudioChunk
from voiceagent_tts.engine.figures import Counts, figures_of, figures_of_device
from voiceagent_tts.engine.guards import frame_cap
from voiceagent_tts.engine.prompts import Prompter
from voiceagent_tts.engine.reader import Reader
from voiceagent_tts.engine.runner import Runner, Sound, StepResult
from voiceagent_tts.engine.scheduler import Pace, Plan, Scheduler, batch_share
from voiceagent_tts.engine.sequence import Run, Sequence, Speaker
from voiceagent_tts.engine.voices import Shelved, VoiceShelf
from voiceagent_tts.errors import (
    ErrorCode,
    InvalidRequestError,
    OverloadedError,
    VoiceAgentError,
)
from voiceagent_tts.model.checkpoint import Checkpoint
from voiceagent_tts.model.prompt import LANGUAGE_CODES, Prompt
from voiceagent_tts.model.sampling import sampling_params
from voiceagent_tts.seam.commands import Append, Cancel, Command, Credit, Flush, Prepare, Submit
from voiceagent_tts.seam.engine import Inbox, Outbox
from voiceagent_tts.seam.events import (
    AudioStep,
    Cancelled,
    Capabilities,
    ContextAudio,
    Done,
    Failed,
    SegmentEnd,
)

_SILENCE = 33  # of 32,767: -60 dBFS
_MOST_PREPARATIONS = 64
_FRAME_BYTES = FRAME_SAMPLES * BYTES_PER_SAMPLE


class Qwen3Engine:
    """Implements `seam.engine.Engine` over one model on one device.

    Args:
        inbox: where commands come from.
        outbox: where events go.
        checkpoint: the model.
        runner: its rows.
        shelf: its voices.
        name: of the model, for people.
        pace: who is served when.
        clock: `time.monotonic`, which the server's credit goes by too.
    """

    def __init__(
        self,
        inbox: Inbox,
        outbox: Outbox,
        checkpoint: Checkpoint,
        runner: Runner,
        shelf: VoiceShelf,
        name: str,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inbox = inbox
        self._outbox = outbox
        self._config = checkpoint.config
        self._generation = checkpoint.generation
        self._tokenizer = checkpoint.tokenizer
        self._prompter = Prompter(checkpoint, runner)
        self._runner = runner
        self._pages = runner.free_pages
        self._scheduler = Scheduler(pace or Pace(), runner.max_rows)
        for cost in runner.costs:
            self._scheduler.note_step(cost.rows, cost.starts, cost.seconds)
        self._shelf = shelf
        self._name = name
        self._clock = clock
        self._speakers: dict[int, Speaker] = {}
        self._readers: dict[int, Reader] = {}
        self._by_row: dict[int, Speaker] = {}
        self._voices: dict[int, Shelved] = {}  # a context keeps its voice when that is replaced
        self._preparations: deque[Prepare] = deque(maxlen=_MOST_PREPARATIONS)
        self._arrivals = itertools.count()
        self._counts = Counts()

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
            max_rows=self._runner.max_rows,
            needs_instruct=self._config.tts_model_type == "voice_design",
            clone_width=self._shelf.clone_width,
            max_batch_rows=self._scheduler.max_batch_rows,
        )

    @property
    def rows_used(self) -> int:
        """Contexts that hold a row, or wait for their next text with one reserved."""
        return len(self._speakers)

    @property
    def figures(self) -> dict[str, float]:
        """What has been done, what was at hand, and how contexts are now."""
        clones, prefixes = self._shelf.counts, self._prompter.counts
        listeners = sum(not speaker.is_batch for speaker in self._speakers.values())
        return {
            **self._counts.figures(),
            **figures_of(self._speakers.values(), self._clock()),
            **figures_of_device(self._runner),
            "load_ratio": self._scheduler.load(listeners),
            "retry_after_seconds": self._scheduler.retry_s(self._speakers.values()),
            "clone_cache_hits_total": clones.hits,
            "clone_cache_misses_total": clones.misses,
            "prefix_cache_hits_total": prefixes.hits,
            "prefix_cache_misses_total": prefixes.misses,
        }

    def step(self) -> float | None:
        """Take commands, start those who wait, make frames, and send what has become sound."""
        self._take_commands()
        self._feed_runs()
        self._prepare_one()
        plan = self._scheduler.plan(self._speakers.values(), self._clock())
        self._start_runs(plan.start)
        result = self._run(plan)
        self._publish(result)
        self._end_runs(plan, result)
        is_busy = plan.speak or plan.decode or self._runner.has_sound_in_flight
        return 0.0 if is_busy or self._preparations else None

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
                    self._cancel(self._speakers[context])
                self._outbox(Cancelled(context))
            case Credit(context) if context in self._speakers:
                self._speakers[context].take_credit(command)
            case Prepare():
                self._preparations.append(command)
            case _:
                pass  # of a context that ended before its sender knew

    def _submit(self, command: Submit) -> None:
        self._admit(command)
        options = command.options
        voice = self._shelf.find(command.voice, options.instruct)
        speaker = Speaker(
            command.context,
            options.instruct,
            secrets.randbits(32) if options.seed is None else options.seed,
            next(self._arrivals),
            is_batch=options.is_batch,
            initial_frames=options.initial_frames,
            keeps_silence=options.keeps_silence,
            speed=options.speed,
            ids_to_start=self._prompter.ids_to_start(voice),
        )
        self._speakers[command.context] = speaker
        self._voices[command.context] = voice
        self._readers[command.context] = Reader(
            self._tokenizer,
            command.feeding,
            command.language,
            speaker.ids_to_start,
            speaker.sequences,
        )
        self._write(speaker, command)

    def _admit(self, command: Submit) -> None:
        try:
            self._scheduler.admit(self._speakers.values(), is_batch=command.options.is_batch)
        except OverloadedError:
            self._counts.refused += 1
            raise

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
        reader.write(command.text, command.char_base, command.language)
        if not command.more:
            speaker.expects_text = False
            reader.end()
        self._skip_silent_text(speaker)

    def _cancel(self, speaker: Speaker) -> None:
        self._counts.discarded_s += speaker.made_lead_s(self._clock()) * speaker.speed
        self._drop(speaker)

    @contextlib.contextmanager
    def _failing(self, context: int) -> Iterator[None]:
        """What goes wrong with one context ends that one alone."""
        try:
            yield
        except VoiceAgentError as error:
            if context in self._speakers:
                self._drop(self._speakers[context])
            self._outbox(Failed(context, error.code, error.message, error.retry_after_ms))

    # Runs begin.

    def _start_runs(self, speakers: list[Speaker]) -> None:
        for speaker in speakers:
            with self._failing(speaker.context):
                self._start(speaker)

    def _prepare_one(self) -> None:
        """What may be needed soon is computed while nobody waits."""
        if not self._preparations:
            return
        if not self._scheduler.has_time(self._speakers.values(), self._clock()):
            return
        command = self._preparations.popleft()
        with contextlib.suppress(VoiceAgentError):  # told when somebody wants to speak so
            instruct = command.options.instruct
            voice = self._shelf.find(command.voice, instruct)
            self._prompter.prepare(voice, command.language, instruct, command.feeding)

    def _start(self, speaker: Speaker) -> None:
        sequence = speaker.sequences[0]
        opening = self._prompter.open(speaker, sequence, self._voices[speaker.context])
        pages = self._likely_pages(opening.prompt, sequence)
        if not self._has_memory(speaker, pages):
            return
        row = self._runner.free_rows[0]
        self._runner.start(
            row,
            opening.prompt,
            sampling_params(self._generation, speaker.seed ^ sequence.is_retried),
            min(self._runner.capacity - len(opening.prompt), self._generation.max_new_tokens),
            is_open=sequence.is_open,
            primed=opening.primed,
            prefix=opening.prefix,
        )
        sequence.take_new_ids()
        speaker.run = Run(row, pages)
        self._by_row[row] = speaker
        self._counts.starts += 1

    def _likely_pages(self, prompt: Prompt, sequence: Sequence) -> int:
        """Of memory, for the prompt and the frames that follow.

        Raises:
            InvalidRequestError: the prompt is too long for any row.
        """
        capacity = self._runner.capacity
        if len(prompt) >= capacity:
            raise InvalidRequestError(
                f"the voice and its text take {len(prompt)} positions; a row has {capacity}",
                code=ErrorCode.TEXT_TOO_LONG,
            )
        frames = min(sequence.likely_frames, self._generation.max_new_tokens)
        return self._runner.pages_needed(min(len(prompt) + frames, capacity - 1))

    def _has_memory(self, speaker: Speaker, pages: int) -> bool:
        """Whether a run that takes so much leaves enough to those that have begun.

        One that nobody waits for, or that goes on, waits for memory.

        Raises:
            OverloadedError: there is no memory for it now.
        """
        runs = [other.run for other in self._speakers.values() if other.run is not None]
        taken = sum(max(run.pages, self._runner.pages_held(run.row)) for run in runs)
        most = batch_share(self._pages) if speaker.is_batch else self._pages
        if not runs or taken + pages <= most:
            return True
        speaker.waits_for_memory = speaker.is_batch or speaker.has_spoken
        if speaker.waits_for_memory:
            return False
        raise self._scheduler.refusal(
            self._speakers.values(),
            f"it takes about {pages} pages of memory, and {self._pages - taken} are free",
        )

    def _feed_runs(self) -> None:
        for speaker in self._speakers.values():
            if speaker.run is not None:
                sequence = speaker.sequences[0]
                if not sequence.is_fed and (sequence.has_new_ids or not sequence.is_open):
                    ids = sequence.take_new_ids()
                    self._runner.feed(speaker.run.row, ids, is_last=sequence.is_fed)
                    speaker.run.is_starved = False

    # Frames become sound.

    def _run(self, plan: Plan) -> StepResult:
        """Make frames, and let frames become sound."""
        speak = [speaker.run for speaker in plan.speak if speaker.run is not None]
        decode = [(s.run, frames) for s, frames in plan.decode if s.run is not None]
        starts = sum(speaker.run is not None for speaker in plan.start)
        began = self._clock()
        result = self._runner.step(
            [run.row for run in speak], {run.row: frames for run, frames in decode}
        )
        if result.frames:
            self._scheduler.note_step(len(result.frames), starts, self._clock() - began)
        self._note_frames(plan.speak, result)
        for run, frames in decode:
            run.decode(min(frames, run.undecoded_frames))
        return result

    def _note_frames(self, speaking: list[Speaker], result: StepResult) -> None:
        """What each run has made, and which of them wait for text."""
        frames = {frame.row: frame for frame in result.frames}
        for speaker in speaking:
            run = speaker.run
            if run is None:
                continue
            if frame := frames.get(run.row):
                speaker.sequences[0].watch.take(frame.code)
                run.make(is_end=frame.is_end)
            elif run.row in result.failed:
                run.is_over = run.has_failed = True
            else:
                run.is_starved = speaker.waited_for_text = True

    def _publish(self, result: StepResult) -> None:
        """Send the step's audio in one message."""
        if not result.sounds:
            return
        now = self._clock()
        audio = [self._hear(self._by_row[sound.row], sound, now) for sound in result.sounds]
        if rows := tuple(row for row in audio if row is not None):
            self._outbox(AudioStep(rows))

    def _hear(self, speaker: Speaker, sound: Sound, now: float) -> ContextAudio | None:
        """The sound as audio of its context, which begins with its first sound."""
        run, sequence = speaker.run, speaker.sequences[0]
        assert run is not None
        run.sound(sound.frames)
        pcm = sound.pcm
        silences = [peak < _SILENCE for peak in frame_peaks(pcm)]
        for is_silent in silences:
            sequence.watch.hear(is_silent=is_silent)
        if not speaker.has_spoken:
            is_stillborn = run.is_over and sequence.watch.is_stillborn and not sequence.is_retried
            if is_stillborn or all(silences):
                speaker.hold(pcm)
                return None
            pcm = speaker.begin(pcm, silences.index(False) * _FRAME_BYTES)
        chunk = AudioChunk(speaker.end_sample, pcm)
        gap_s = speaker.send(chunk.samples, now)
        if gap_s > 0 and not speaker.is_batch:
            self._counts.underruns += 1
            self._counts.underrun_s += gap_s
        return ContextAudio(speaker.context, chunk)

    # Runs end.

    def _end_runs(self, plan: Plan, result: StepResult) -> None:
        """Those that have made or sounded their last frame, or have lost their text."""
        heard = [self._by_row[sound.row] for sound in result.sounds]
        for speaker in {speaker.context: speaker for speaker in plan.speak + heard}.values():
            self._end_if_over(speaker)

    def _end_if_over(self, speaker: Speaker) -> None:
        run = speaker.run
        if run is None:  # there was no memory to start it
            return
        sequence = speaker.sequences[0]
        max_frames = None if sequence.is_open else frame_cap(sequence.text_ids)
        if sequence.watch.is_lost(max_frames, has_spoken=speaker.has_spoken):
            run.is_over = True
            if not speaker.has_spoken:
                self._end_run(speaker)
                return
        if run.is_over and not run.unheard_frames:
            self._end_run(speaker)

    def _end_run(self, speaker: Speaker) -> None:
        """Free the row; a run that came to nothing is tried again, as nobody has heard it."""
        assert speaker.run is not None
        run, speaker.run = speaker.run, None
        self._free(run)
        if run.has_failed:
            with self._failing(speaker.context):
                raise self._scheduler.refusal(
                    self._speakers.values(), "the memory of all rows is full"
                )
        elif not speaker.has_spoken and not speaker.sequences[0].is_retried:
            speaker.retry()
        else:
            self._end_text(speaker)
            self._skip_silent_text(speaker)

    def _skip_silent_text(self, speaker: Speaker) -> None:
        """Pass over sequences without anything to say, and end a context that has said all."""
        while speaker.run is None and speaker.sequences:
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
        speaker.waited_for_text = not speaker.has_text_to_start
        self._outbox(SegmentEnd(speaker.context, sequence.char_end, speaker.end_sample))

    def _drop(self, speaker: Speaker) -> None:
        if speaker.run is not None:
            self._free(speaker.run)
        for held in (self._speakers, self._readers, self._voices):
            del held[speaker.context]

    def _free(self, run: Run) -> None:
        self._runner.cancel(run.row)
        del self._by_row[run.row]
        for speaker in self._speakers.values():
            speaker.waits_for_memory = False
