"""Qwen3-TTS behind the engine seam: text in, audio out, one frame of every row per step.

The text of a context becomes sequences, each spoken by one row; they follow each other in the same
voice and seed, on one clock. In token feeding a sequence starts with the first words and is fed the
rest as it is written; a row without text waits. One thread uses the engine.
"""

import itertools
import math
import secrets
import time
from collections.abc import Callable

from voiceagent_tts.engine.metrics import Counts, GpuUsage, context_metrics, device_metrics
from voiceagent_tts.engine.prompt_cache import Preparations, PromptCache
from voiceagent_tts.engine.publisher import Publisher
from voiceagent_tts.engine.runner import Runner, StepResult
from voiceagent_tts.engine.scheduler import Plan, Scheduler
from voiceagent_tts.engine.sequence import EngineContext, Sequence, SequenceState, TextState
from voiceagent_tts.engine.text_queue import (
    OpenContext,
    SequenceBuilder,
    TextQueue,
    read_first_text,
)
from voiceagent_tts.engine.voice_cache import VoiceCache
from voiceagent_tts.errors import ErrorCode, InvalidRequestError, OverloadedError
from voiceagent_tts.model.checkpoint import Checkpoint
from voiceagent_tts.model.kv_pool import pages_for
from voiceagent_tts.model.prompt import LANGUAGE_CODES, Prompt
from voiceagent_tts.model.sampling import sampling_params
from voiceagent_tts.seam.commands import Append, Cancel, Command, Credit, Flush, Prepare, Submit
from voiceagent_tts.seam.engine import Inbox, Outbox
from voiceagent_tts.seam.events import Cancelled, Capabilities


class Qwen3Engine:
    """Implements `seam.engine.Engine` over one model on one device.

    Args:
        name: name of the model for people.
        max_load: as in `Scheduler`.
        clock: `time.monotonic`, which the server's credit refers to, too.
    """

    def __init__(
        self,
        inbox: Inbox,
        outbox: Outbox,
        checkpoint: Checkpoint,
        runner: Runner,
        voices: VoiceCache,
        name: str,
        max_load: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inbox = inbox
        self._outbox = outbox
        self._checkpoint = checkpoint
        read_first_text(checkpoint.tokenizer)
        self._runner = runner
        self._scheduler = Scheduler(runner.max_rows, runner.pages, max_load)
        for cost in runner.costs:
            self._scheduler.costs.record(cost.rows, cost.starts, cost.seconds)
        self._prompts = PromptCache(checkpoint, runner, self._scheduler)
        self._voices = voices
        self._name = name
        self._clock = clock
        self._contexts: dict[int, OpenContext] = {}
        self._texts = TextQueue(self._contexts)
        self._counts = Counts()
        device = checkpoint.network.device
        self._gpu = GpuUsage(device) if device.type == "cuda" else None
        self._publisher = Publisher(
            outbox, self._contexts, self._scheduler, runner, self._counts, clock
        )
        self._preparations = Preparations(self._prompts, voices)
        self._arrivals = itertools.count()

    @property
    def capabilities(self) -> Capabilities:
        """What this engine can do."""
        config = self._checkpoint.config
        known = config.talker_config.codec_language_id
        return Capabilities(
            engine="qwen3",
            model=self._name,
            has_native_words=False,
            text_feeding=("token", "segment"),
            languages=tuple(code for code, name in LANGUAGE_CODES.items() if name in known),
            voices=self._voices.names(),
            max_rows=self._runner.max_rows,
            takes_instruct=config.takes_instruct,
            needs_instruct=config.tts_model_type == "voice_design",
            clone_width=self._voices.clone_width,
            max_batch_rows=self._scheduler.max_batch_rows,
            revision=self._checkpoint.revision,
            voice_details=self._voices.details(),
        )

    @property
    def rows_used(self) -> int:
        """Contexts that hold a row, or have one reserved for their next text."""
        return len(self._contexts)

    @property
    def metrics(self) -> dict[str, float]:
        """Totals since the start, the load of the device, and the state of contexts."""
        contexts = self._contexts.values()
        listeners = sum(not context.is_batch for context in contexts)
        return {
            **self._counts.metrics(),
            **context_metrics(contexts, self._clock()),
            **device_metrics(self._runner),
            **self._voices.counts.metrics("clone"),
            **self._prompts.counts.metrics("prefix"),
            **(self._gpu.latest if self._gpu is not None else {}),
            "free_pages": self._scheduler.memory.free_pages,
            "load_ratio": self._scheduler.load(listeners),
            "retry_after_seconds": self._scheduler.retry_s(contexts),
        }

    def step(self) -> float | None:
        """Receive commands, schedule, run, record, and publish."""
        self._receive_commands()
        self._prime_one()
        contexts = self._contexts.values()
        if self._preparations.are_waiting and self._scheduler.has_time(contexts, self._clock()):
            self._preparations.compute_part()
        began, started = self._clock(), self._counts.starts
        plan = self._schedule()  # starts, steps and windows; rows, pages and refusals
        result = self._run(plan)  # prefill, code predictor, codec and talker
        self._record(plan, result)  # frames, and rows that have ended or wait for text
        self._publisher.send(result.sounds)
        self._publisher.end_finished(plan.step)
        if result.frames:  # the host's share, that of starts included, delays listeners, too
            starts = self._counts.starts - started
            self._scheduler.costs.record(len(result.frames), starts, self._clock() - began)
        is_busy = plan.step or plan.decode or self._runner.has_sound_in_flight
        waits = self._preparations.are_waiting or self._texts.is_busy or self._unprimed()
        return 0.0 if is_busy or waits else None

    def close(self) -> None:
        """Drop every context; idempotent."""
        for context in list(self._contexts.values()):
            self._publisher.drop(context)
        if self._gpu is not None:
            self._gpu.close()

    # Commands.

    def _receive_commands(self) -> None:
        for command in self._inbox():
            self._receive(command)
        for context in self._texts.pop_read():
            if self._contexts.get(context.id) is context:
                with self._publisher.failing(context.id):
                    if context.fault is not None:
                        raise context.fault
                    self._publisher.skip_silent_text(context)
        for context in list(self._contexts.values()):
            with self._publisher.failing(context.id):
                self._feed(context)

    def _receive(self, command: Command) -> None:
        if isinstance(command, Prepare):
            self._preparations.push(command)
            return
        context = self._contexts.get(command.context)  # None once it has ended
        with self._publisher.failing(command.context):
            match command:
                case Submit():
                    self._submit(command)
                case Cancel():
                    self._cancel(command.context, context)
                case Append() if context:
                    self._append_text(context, command)
                case Flush() if context:
                    self._texts.push(context, command)
                case Credit() if context:
                    context.update_credit(command)
                case _:
                    pass  # the context ended before the sender knew

    def _cancel(self, id: int, context: OpenContext | None) -> None:
        if context is not None:
            lead_s = context.generated_lead_s(self._clock())
            self._counts.discarded_seconds += lead_s * context.options.speed
            self._publisher.drop(context)
        self._outbox(Cancelled(id))

    def _submit(self, command: Submit) -> None:
        self._admit(command)
        options = command.options
        voice = self._voices.find(command.voice, options.instruct, command.voice_version)
        ids_to_start = self._prompts.ids_to_start(voice)
        builder = SequenceBuilder(
            self._checkpoint.tokenizer, command.feeding, command.language, ids_to_start
        )
        context = OpenContext(
            command.context,
            options,
            secrets.randbits(32) if options.seed is None else options.seed,
            next(self._arrivals),
            ids_to_start,
            builder.sequences,
            voice=voice,
            builder=builder,
            waits_for_voice=not self._prompts.is_primed(voice),
            continues=command.continues,
        )
        self._contexts[context.id] = context
        self._append_text(context, command)

    def _admit(self, command: Submit) -> None:
        try:
            self._scheduler.admit(
                self._contexts.values(),
                is_batch=command.options.is_batch,
                continues=command.continues,
            )
        except OverloadedError:
            self._counts.refused += 1
            raise

    def _append_text(self, context: OpenContext, command: Submit | Append) -> None:
        if context.has_all_text:
            raise InvalidRequestError(
                f"context {context.id} received text after its last text",
                code=ErrorCode.CONTEXT_CLOSED,
            )
        context.has_all_text = not command.more
        self._texts.push(context, command)

    def _feed(self, context: EngineContext) -> None:
        active = context.active
        if active is None or not context.current.can_feed:
            return
        sequence = context.current
        ids = sequence.next_ids()
        self._runner.batch.feed(active.row, ids, is_last=sequence.text is TextState.FED)
        if active.state is SequenceState.STARVED:
            active.state = SequenceState.RUNNING

    def _unprimed(self) -> list[OpenContext]:
        return [context for context in self._contexts.values() if context.waits_for_voice]

    def _prime_one(self) -> None:
        """Compute a part of the voice that has been waited for longest, by listeners first.

        That of a file is computed where this delays no listener.
        """
        unprimed = self._unprimed()
        if not unprimed:
            return
        first = min(unprimed, key=lambda context: (context.is_batch, context.arrival))
        contexts = self._contexts.values()
        if first.is_batch and not self._scheduler.has_time(contexts, self._clock()):
            return
        with self._publisher.failing(first.id):
            self._prompts.prime_part(first.voice)
        for context in unprimed:
            context.waits_for_voice = not self._prompts.is_primed(context.voice)

    # Schedule.

    def _schedule(self) -> Plan:
        """Decide what this step does; give rows to new sequences, and pages to full rows."""
        contexts = self._contexts.values()
        self._scheduler.memory.take_back(contexts)
        plan = self._scheduler.plan(contexts, self._clock())
        for context in plan.start:
            with self._publisher.failing(context.id):
                self._start(self._contexts[context.id])
        self._extend_rows(plan.step)
        return plan

    def _extend_rows(self, step: list[EngineContext]) -> None:
        """Give pages to full rows; a listener's gets those of a file if no others are free."""
        by_row = {context.active.row: context for context in step if context.active}
        full = [by_row[row] for row in self._runner.batch.full_rows(by_row)]
        contexts = self._contexts.values()
        for context in self._scheduler.by_urgency(full, self._clock()):
            if loser := self._scheduler.giving_way(context, contexts):
                self._publisher.fail_for_memory(loser)
            active = context.active  # None once it has given way
            if active and self._scheduler.extend(context, contexts):
                self._runner.batch.set_pages(active.row, active.pages)

    def _start(self, context: OpenContext) -> None:
        sequence = context.current
        priming = context.voice.priming
        prompt, prefix = self._prompts.build(sequence, context.voice, context.options.instruct)
        likely_pages = self._likely_pages(prompt, sequence)
        prompt_pages = pages_for(len(prompt) + 1)  # with the first frame
        active = self._scheduler.reserve(
            context, prompt_pages, likely_pages, self._contexts.values()
        )
        if active is None:
            return
        self._runner.start(
            active.row,
            prompt,
            sampling_params(self._checkpoint.generation, context.seed ^ sequence.is_retried),
            self._checkpoint.generation.max_new_tokens,
            is_open=sequence.is_open,
            pages=active.pages,
            primed=None if priming is None else priming.state,
            prefix=prefix,
        )
        sequence.next_ids()
        self._counts.starts += 1

    def _likely_pages(self, prompt: Prompt, sequence: Sequence) -> int:
        capacity = self._runner.capacity
        if len(prompt) >= capacity:
            raise InvalidRequestError(
                f"the prompt needs {len(prompt)} positions, but a row holds {capacity}; shorten "
                "the reference recording or the text",
                code=ErrorCode.TEXT_TOO_LONG,
            )
        frames = min(sequence.likely_frames, self._checkpoint.generation.max_new_tokens)
        return pages_for(min(len(prompt) + frames + 1, capacity))

    # Run and record.

    def _run(self, plan: Plan) -> StepResult:
        rows = [context.active.row for context in plan.step if context.active and context.can_step]
        decode = {c.active.row: frames for c, frames in plan.decode if c.active}
        return self._runner.step(rows, decode, self._work_beside)

    def _work_beside(self) -> None:
        self._publisher.send(self._runner.collect_earlier())
        self._texts.read()

    def _record(self, plan: Plan, result: StepResult) -> None:
        """Record what each row made, which rows wait for text, and what the codec decodes."""
        frames = {frame.row: frame for frame in result.frames}
        for context in plan.step:
            active = context.active
            if active is None:
                continue
            if frame := frames.get(active.row):
                with self._publisher.failing(context.id):
                    context.current.detector.add_frame(frame.code)
                    active.add_frame(is_end=frame.is_end)
            elif active.state is SequenceState.RUNNING:
                active.state = SequenceState.STARVED
                context.waited_for_text = True
        for context, count in plan.decode:
            if active := context.active:
                active.submit_to_codec(min(count, active.undecoded_frames))
