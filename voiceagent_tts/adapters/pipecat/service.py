"""`VoiceAgentTTSService`: this server as a Pipecat text-to-speech service.

One socket serves the pipeline for its lifetime. The conversation's history receives exactly the
words of a turn that were heard: each word leaves with its audio, timed by the transport's playback,
underruns included. Text goes to the server clause by clause and returns verbatim. `connection`
keeps the socket open, `speaking` speaks turns and resumes those that break off, and this module
implements Pipecat's service API. `output`, `playout` and `text` decide what leaves for the
transport, and when.

The service depends only on the wire (`client.ClientSocket`) and Pipecat's service API, with some of
its private names: `tests/adapters/pipecat/test_private_names.py` lists them with their reasons.
"""

import asyncio
import contextlib
import copy
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

from pipecat.frames.frames import (
    AggregatedTextFrame,
    BotStartedSpeakingFrame,
    BotStoppedSpeakingFrame,
    EagerTranscriptionFrame,
    EndFrame,
    Frame,
    InterimTranscriptionFrame,
    InterruptionFrame,
    LLMAssistantPushAggregationFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    ServiceSwitcherRequestMetadataFrame,
    StartFrame,
    TextFrame,
    TranscriptionFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
)
from pipecat.metrics.metrics import MetricsData
from pipecat.observers.base_observer import BaseObserver, FramePushed
from pipecat.pipeline.worker_observer import WorkerObserver
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor, FrameProcessorSetup
from pipecat.services.settings import TTSSettings
from pipecat.services.tts_service import TextAggregationMode, TTSService
from pipecat.transcriptions.language import Language
from pipecat.transports.base_output import BaseOutputTransport
from pipecat.utils.text.base_text_aggregator import Aggregation, BaseTextAggregator
from pipecat.utils.text.pattern_pair_aggregator import PatternMatch
from pipecat.utils.text.transforms.pronunciations import PronunciationTransform
from pipecat.utils.tracing.service_decorators import traced_tts
from pipecat.utils.types import is_given

from voiceagent_tts.adapters.options import (
    check_count,
    check_not_negative,
    check_positive,
    check_sample_rate,
    check_speech,
    check_strings,
    open_options,
)
from voiceagent_tts.adapters.pipecat.output import (
    AudioEndFrame,
    HistoryCorrectionFrame,
    KeepAliveFrame,
    Output,
)
from voiceagent_tts.adapters.pipecat.playout import Playout
from voiceagent_tts.adapters.pipecat.settings import (
    VoiceAgentTTSSettings,
    check_aggregator,
    check_arguments,
    checked_settings,
    pop_mode,
    pop_settings,
    server_settings,
)
from voiceagent_tts.adapters.pipecat.speaking import PipecatReply, TurnTTSService
from voiceagent_tts.adapters.pipecat.text import CONTINUES, ClauseAggregator, joint, without_end
from voiceagent_tts.adapters.pipecat.turn import SpokenWord
from voiceagent_tts.adapters.turn import TurnState, WholeCharacters, silence, whole_characters
from voiceagent_tts.client import ClientSocket
from voiceagent_tts.core import BYTES_PER_SAMPLE
from voiceagent_tts.errors import VoiceAgentError
from voiceagent_tts.protocol.client_connection import OpenOptions
from voiceagent_tts.text.markup import phoneme

_LEAD_S = 1.0
"""How long before its playback audio is sent to the transport: longer than pauses of a busy
program."""
_UTTERANCE_LEAD_S = 0.3
"""How long before its playback the first audio of an utterance that follows another one is sent."""
_LLM_PAUSE_S = 6.0
"""How long a reply without more audio holds back what follows it, if its end does not come. Behind
a longer pause of the LLM it goes on in a new audio context."""
_SHORTEST_WAIT_S = 0.001
_END_PATIENCE_S = 3.0
"""How long after its last audio the pipeline's end waits for held words: longer than it takes to
give up a silent transport."""
_COMMITS = (LLMFullResponseEndFrame, LLMAssistantPushAggregationFrame, InterruptionFrame)
"""Frames that commit the words so far as a message of the history."""
_HEARD = (TranscriptionFrame, InterimTranscriptionFrame, EagerTranscriptionFrame)
"""Frames of text that the user has said; Pipecat passes them on."""
_TURNS_BEFORE_CUT = 64
"""Iterations of the event loop without a report of the transport before an interruption continues.
A transport that catches up takes eight per chunk, and a word twice as many from the report to the
history; together one or two milliseconds."""
_LONGEST_CATCH_UP_S = 0.2
"""Longest time for which an interruption waits for the transport: on an overloaded machine, so many
iterations take longer than a chunk, and the reports would never end."""


class VoiceAgentTTSService(TurnTTSService):
    """Speaks LLM text through a voiceagent-tts server, and commits the words that were heard.

        tts = VoiceAgentTTSService(settings=VoiceAgentTTSService.Settings(voice="default"))
        Pipeline([..., llm, tts, transport.output(), context_aggregator.assistant()])

    Put no slow processor between the output transport and the assistant's aggregator: the history
    is cut there, at the moment of the interruption.

    Event handlers besides those of `TTSService`:
        on_words: called with `(service, context_id, words)` when word times have arrived, ahead of
            playback; `words` are `WordTimestamp`s, positions in samples at 24 kHz of the turn's
            audio and characters of its text. After a turn broke off, words are sent again from
            that point on: they replace the earlier ones.

    Args:
        url: the server, such as `ws://127.0.0.1:8765`; without a path, `/v1/tts/ws`; `http://`
            and `https://` mean `ws://` and `wss://`. None for `VOICEAGENT_TTS_URL`, or else a
            server on this machine.
        api_key: sent as a bearer token; None for `VOICEAGENT_TTS_API_KEY`, if it is set.
        extra_headers: further HTTP headers, such as those that a proxy requires.
        settings: voice, language and so on; `extra` may set any other option of `context.open` but
            `audio` and `timestamps`. The server chooses options that are missing.
        text_aggregator: collects LLM tokens into the pieces of text that Pipecat passes to
            `run_tts`. The default passes clauses on early; use one of Pipecat's if your text
            transforms need whole sentences.
        text_aggregation_mode: Pipecat's; `TOKEN` passes each token on at once, for an LLM that
            writes more slowly than one speaks. A `text_aggregator` decides by itself.
        max_buffer_delay_ms: how long the server may hold text back to wait for its sentence.
        max_lead_s: how far the server may run ahead of playback.
        response_timeout_s: a turn breaks off when the server owes audio and is silent for longer.
        output_latency_s: delay between the transport and the listener (the network, the player's
            buffer); words count as heard that much later.
        reconnect_attempts: attempts after a loss, 0.25 s apart; after these, the next turn
            connects.
        **kwargs: fields of `Settings` (`model`, `voice` or `voice_id`, `language` and so on), as
            Pipecat's own services accept them, which `settings` overrides; and arguments of
            `TTSService`.

    Raises:
        InvalidRequestError: `url` is not the address of a server, or an option is wrong.
        ValueError: `settings` has an unknown field or option, `voice` and `voice_id` differ,
            `text_aggregator` passes tokens on, or there is no such `text_aggregation_mode`.
        TypeError: an argument is unknown, or this service sets it itself.
    """

    Settings = VoiceAgentTTSSettings

    def __init__(
        self,
        *,
        url: str | None = None,
        api_key: str | None = None,
        extra_headers: Mapping[str, str] | None = None,
        settings: Settings | None = None,
        text_aggregator: BaseTextAggregator | None = None,
        text_aggregation_mode: TextAggregationMode | None = None,
        max_buffer_delay_ms: int | None = None,
        max_lead_s: float | None = None,
        response_timeout_s: float = 10.0,
        output_latency_s: float = 0.0,
        reconnect_attempts: int = 240,
        **kwargs: Any,
    ) -> None:
        defaults = server_settings()
        transforms = [transform for _, transform in kwargs.get("text_transforms") or ()]
        if any(isinstance(transform, PronunciationTransform) for transform in transforms):
            defaults.markup = True  # or it would have no effect
        defaults.apply_update(pop_settings(kwargs))
        if settings is not None:
            defaults.apply_update(checked_settings(settings))
        check_arguments(type(self), kwargs)
        if (sample_rate := kwargs.get("sample_rate")) is not None:
            check_sample_rate(sample_rate)
        check_positive(response_timeout_s=response_timeout_s)
        check_not_negative(output_latency_s=output_latency_s)
        check_count(reconnect_attempts=reconnect_attempts)
        mode = pop_mode(kwargs, text_aggregation_mode)
        self._by_token = mode is TextAggregationMode.TOKEN and text_aggregator is None
        check_aggregator(text_aggregator)
        if text_aggregator is None:  # the pieces of a text have their own white space
            kwargs.pop("append_trailing_space", None)
        super().__init__(
            url=url,
            api_key=api_key,
            extra_headers=extra_headers,
            reconnect_attempts=reconnect_attempts,
            response_timeout_s=response_timeout_s,
            push_text_frames=False,
            push_start_frame=True,
            push_stop_frames=False,
            pause_frame_processing=False,
            stop_frame_timeout_s=_LLM_PAUSE_S,
            settings=defaults,
            **kwargs,
        )
        aggregator = text_aggregator or ClauseAggregator(
            language=self.text_aggregation_language, by_token=self._by_token
        )
        self._aggregator = aggregator
        self._clauses = aggregator if isinstance(aggregator, ClauseAggregator) else None
        self._destination: str | None = kwargs.get("transport_destination")
        self._has_news = asyncio.Event()  # about what is held
        self._holds_nothing = asyncio.Event()
        self._holds_nothing.set()
        self._leaving: asyncio.Task[None] | None = None
        self._releasing = asyncio.Lock()
        self._register_event_handler("on_words")
        self._pacing = {"max_buffer_delay_ms": max_buffer_delay_ms, "max_lead_s": max_lead_s}
        self._output_latency_s = output_latency_s
        self._begin_pipeline()
        self._names_servers_model = defaults.model is None  # in metrics
        self._check(defaults)

    def can_generate_metrics(self) -> bool:
        """Return True: the service reports TTFB, TTFA and characters."""
        return True

    @classmethod
    def format_pronunciation(cls, word: str, ipa: str) -> str | None:
        """The markup with which `pronunciation_transform_ipa` says `word`; None where it cannot."""
        return phoneme(word, ipa)

    @property
    def supports_pronunciations(self) -> bool:
        """Whether tags have an effect: with the setting `markup`."""
        return bool(self.settings.given_fields().get("markup"))

    def language_to_service_language(self, language: Language) -> str | None:
        """The language code itself, region included, which the server understands."""
        return str(language.value)

    @property
    def settings(self) -> VoiceAgentTTSSettings:
        """The current settings, for reading; a `TTSUpdateSettingsFrame` changes them."""
        return cast("VoiceAgentTTSSettings", super().settings)

    def _begin_pipeline(self) -> None:
        self._text_contexts.clear()
        self._starts_text = True  # the next piece does not continue the one before it
        self._piece: AggregatedTextFrame | None = None  # of text, which Pipecat passes to `run_tts`
        self._characters = WholeCharacters()  # of the LLM's text
        self._words: dict[str, deque[SpokenWord]] = {}  # by context; their audio has not left
        self._started: TTSStartedFrame | None = None  # the last one that has left
        self._not_interrupted: set[str | None] = set()  # contexts that outlast an interruption
        self._noise = ""
        self._playout = Playout(self._output_latency_s)
        self._output = Output(self._playout)
        self._rest: tuple[str | None, bytes] = None, b""  # of a context's audio: less than a chunk

    async def setup(self, setup: FrameProcessorSetup) -> None:
        """Connect, and watch what the transport plays; each pipeline has a clock of its own."""
        await self._disconnect()  # a `StopFrame` has ended the last pipeline, and nothing here
        await self._stop_leaving()
        self._begin_pipeline()
        await self._aggregator.reset()
        if isinstance(setup.observer, WorkerObserver):
            setup.observer.add_observer(_TransportObserver(self._guarded(self._receive_report)))
        await super().setup(setup)
        self._leaving = self._repeat(self._let_frames_leave)

    async def stop(self, frame: EndFrame) -> None:
        """Speak what has arrived of a reply that has not ended, and disconnect."""
        if self._clauses:
            await self._speak(self._clauses.pop())
        await self.on_turn_context_completed()
        await super().stop(frame)

    async def cleanup(self) -> None:
        """End the tasks of the service."""
        await self._stop_leaving()
        await super().cleanup()

    async def _stop_leaving(self) -> None:
        if self._leaving is not None:
            await self.cancel_task(self._leaving)
            self._leaving = None

    async def _receive_connection(self, socket: ClientSocket) -> None:
        if self._names_servers_model:
            self.settings.model = socket.ready.model
            self.set_core_metrics_data(
                MetricsData(processor=self.name, model=self.settings.model or "")
            )
        await super()._receive_connection(socket)

    # Text in.

    async def on_turn_context_created(self, context_id: str) -> None:
        """Open the context while the LLM is still thinking, so that the server can prepare."""
        self._text_contexts[context_id] = context_id
        if context_id in self._replies or self._connection.is_closed:
            return  # the reply has started again before its end
        reply = self._add_reply(context_id)
        if (socket := self._connection.socket) is not None:
            with contextlib.suppress(VoiceAgentError):  # the first text opens it again
                reply.open(socket)

    @traced_tts
    async def _trace_text(self, text: str, context_id: str) -> None:
        """Pass the turn's text on to Pipecat's span: the decorator writes it there."""

    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        """Send a piece of the turn's text; its audio arrives by its own task.

        Text that comes after the pipeline's end is dropped.
        """
        if not self._connection.is_closed:
            reply = self._replies.get(context_id) or self._add_reply(context_id)
            if reply.turn.state is not TurnState.FAILED:
                await self._append_text(reply, text)
        if self._text_context_id != context_id:
            # A whole text, or one whose reply goes on in another audio context: Pipecat leaves this
            # one open, which would hold back all others.
            await self.flush_audio(context_id)
        yield None  # no frames here: audio is queued when it arrives

    async def _append_text(self, reply: PipecatReply, text: str) -> None:
        reply.append(self._space_before(reply.text, text) + text)
        self._starts_text, context_id = False, reply.turn.context_id
        getattr(self, "_tts_texts", {}).pop(context_id, None)  # it joins pieces by spaces
        await self._trace_text(reply.text, context_id)
        if not self._by_token:
            await self.start_tts_usage_metrics(text)

    def _space_before(self, text: str, piece: str) -> str:
        """What separates a turn's `text` so far from its next piece, which Pipecat has stripped."""
        if self._piece is None or not text or piece.startswith("\n"):
            return ""
        whole = self._piece.text
        line_breaks = whole[: len(whole) - len(whole.lstrip("\n"))]
        is_continuation = CONTINUES in self._piece.metadata
        return line_breaks or ("" if is_continuation else joint(text, piece))

    async def flush_audio(self, context_id: str | None = None) -> None:
        """End the text of a context."""
        context_id = context_id or self.get_active_audio_context_id()
        reply = self._replies.get(context_id) if context_id else None
        if reply is not None and not reply.has_all_text:
            reply.end_text()
            if self._by_token:
                await self.start_tts_usage_metrics(reply.text)

    async def on_turn_context_completed(self) -> None:
        """End the turn on the server, even one without text.

        Such a turn belongs to a reply that only calls a function, for example.
        """
        context_id = self._pop_text_context()
        await super().on_turn_context_completed()
        if context_id and self.audio_context_available(context_id):
            await self.flush_audio(context_id)
        elif context_id:
            self._stop_reply(context_id)

    def _add_reply(self, context_id: str) -> PipecatReply:
        reply = PipecatReply(self, context_id)
        self._replies[context_id] = reply
        return reply

    def _check(self, settings: TTSSettings) -> None:
        check_strings(model=settings.model)
        check_speech(**self._open_options(settings))

    def _open_options(self, settings: TTSSettings) -> OpenOptions:
        chosen = self._pacing | settings.given_fields()
        chosen.pop("model")  # a voice implies its model
        return open_options(chosen, self._output_rate_hz)

    # Settings.

    async def _update_settings(self, delta: TTSSettings) -> dict[str, Any]:
        """Apply a change; the next piece of text opens a context with the new settings.

        Raises:
            InvalidRequestError: an option is wrong; nothing has changed.
            ValueError: a field or an option in `extra` is unknown.
        """
        delta = checked_settings(delta)
        changed_settings = copy.deepcopy(self.settings)
        changed_settings.apply_update(delta)
        self._check(changed_settings)
        if is_given(delta.language):
            self._aggregator.set_language(delta.language)
        changed = await super()._update_settings(delta)
        if changed:
            self._choices.change(copy.deepcopy(self.settings))
        if changed and (context_id := self._text_context_id):
            self._move_text_from(context_id)
            if self.audio_context_available(context_id):
                await self.flush_audio(context_id)
            else:
                self._stop_reply(context_id)
        return changed

    def _restore_settings(self) -> None:
        before = copy.deepcopy(self._choices.current.settings)
        before.model = self.settings.model  # a name, which the server may have given since
        vars(self.settings).update(vars(before))
        self._aggregator.set_language(before.given_fields()["language"])

    # Interruption, and the end of an audio context.

    async def on_audio_context_interrupted(self, context_id: str) -> None:
        """Cancel the context on the server at once."""
        self._words.pop(context_id, None)
        self._stop_reply(context_id)
        await self.stop_all_metrics()
        await super().on_audio_context_interrupted(context_id)

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Collect the text that is spoken into pieces; Pipecat handles these, and other frames."""
        is_spoken = not getattr(frame, "skip_tts", False)
        match frame:
            case InterruptionFrame():
                return await self._process_interruption(frame, direction)
            case ServiceSwitcherRequestMetadataFrame():
                await self._forget_reply()
            case AggregatedTextFrame() | TTSSpeakFrame() | LLMFullResponseStartFrame() if is_spoken:
                return await self._process_other_text(frame, direction)
            case TextFrame() if is_spoken and not isinstance(frame, _HEARD):
                await super(TTSService, self).process_frame(frame, direction)
                is_of_llm = direction is FrameDirection.DOWNSTREAM
                text = self._characters.add(frame.text) if is_of_llm else frame.text
                return await self._collect(text)
            case LLMFullResponseEndFrame() if is_spoken:
                if half := self._characters.end():
                    await self._collect(half)
                await self._speak(await self._aggregator.flush())
            case _:
                pass
        await super().process_frame(frame, direction)

    async def _collect(self, text: str) -> None:
        if not self._by_token:
            await self.start_text_aggregation_metrics()
        async for piece in self._aggregator.aggregate(text):
            await self._speak(piece)

    async def _speak(self, piece: Aggregation | None) -> None:
        if piece is None:
            return
        await self.stop_text_aggregation_metrics()
        raw_text = piece.full_match if isinstance(piece, PatternMatch) else piece.text
        self._piece = frame = AggregatedTextFrame(piece.text, piece.type, raw_text=raw_text)
        if self._clauses and not self._starts_text:
            frame.metadata[CONTINUES] = True
        await super().process_frame(frame, FrameDirection.DOWNSTREAM)

    async def _process_other_text(
        self,
        frame: AggregatedTextFrame | TTSSpeakFrame | LLMFullResponseStartFrame,
        direction: FrameDirection,
    ) -> None:
        """Process a text, or what begins one, that does not continue the text in the aggregator."""
        if self._clauses:  # the LLM's text so far is spoken before it
            await self._speak(self._clauses.pop())
        if isinstance(frame, LLMFullResponseStartFrame):
            self._characters.end()
        else:
            frame.text = whole_characters(frame.text)
        if isinstance(frame, AggregatedTextFrame):
            self._piece = frame
            frame.raw_text = frame.raw_text and whole_characters(frame.raw_text)
        # Nor does what follows it; an utterance has an audio context of its own.
        starts_text = self._starts_text or not isinstance(frame, TTSSpeakFrame)
        self._starts_text = starts_text
        await super().process_frame(frame, direction)
        self._starts_text = starts_text

    async def _process_interruption(
        self, frame: InterruptionFrame, direction: FrameDirection
    ) -> None:
        """Handle an interruption, which also ends contexts that Pipecat has not opened yet."""
        if direction is FrameDirection.UPSTREAM:
            await self._follow_transport(frame)
        else:
            await self._let_words_arrive()
        self._characters.end()
        await self._aggregator.handle_interruption()
        await super().process_frame(frame, direction)
        if (going_on := self._text_context_id) is None:
            self._text_contexts.clear()
        for context_id in self._replies.keys() - {going_on}:
            if not self.audio_context_available(context_id):
                self._stop_reply(context_id)
        await self._go_on_after_interruption()

    async def _forget_reply(self) -> None:
        """End the reply in which another service took over: its end has not come here."""
        await self._aggregator.reset()
        await self.on_turn_context_completed()
        self._starts_text = True
        self._characters.end()

    async def _go_on_after_interruption(self) -> None:
        """Begin a new message in the history for the rest of an utterance that is not interrupted.

        The interruption has ended the message with what was heard, and Pipecat commits no words of
        an utterance that has not started. The end of a reply, which commits what is said within it,
        may never come.
        """
        self._not_interrupted = {*self.get_audio_contexts(), self._text_context_id}
        started, now_s = self._started, self._now_s()
        if started is None or started.interruptible:
            return
        awaits_audio = self.audio_context_available(started.context_id or "")
        if not (awaits_audio or self._playout.lead_s(now_s)):
            return
        again = replace(started)
        again.interruptible, again.pts = False, round(now_s * 1e9)  # by the clock, ahead of audio
        await super().push_frame(again)

    async def _follow_transport(self, interruption: InterruptionFrame) -> None:
        """Drop what is held, at once: another copy of `interruption` has reached the transport."""
        unheard = self._unheard()
        self._output.receive(interruption, self._now_s())
        await self._remove_from_history(unheard)

    async def _let_words_arrive(self) -> None:
        """Wait until the words that were heard have reached the history.

        An interruption overtakes the frames on their way. A word that it overtakes would be missing
        from this turn in the history, and begin the next one. So the interruption waits for a
        transport that catches up, and for a word that is about to be heard. It drops the other
        words when it leaves.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LONGEST_CATCH_UP_S):
                await self._let_transport_catch_up()
                while wait_s := self._output.word_at_hand_s(self._now_s()):
                    await asyncio.sleep(wait_s)
                    await self._let_transport_catch_up()

    async def _let_transport_catch_up(self) -> None:
        reports = None
        while reports != self._playout.reports:
            reports = self._playout.reports
            await _yield_to_others()

    # Words out.

    async def _add_words(self, context_id: str, words: list[SpokenWord]) -> None:
        if self.audio_context_available(context_id):
            self._words.setdefault(context_id, deque()).extend(words)
            await self._release_words(context_id)
            self._has_news.set()  # a word that is held may have a better time

    async def _release_words(self, context_id: str | None, *, ends: bool = False) -> None:
        """Release the words whose audio the transport has; an interruption drops the others.

        An aligner's words arrive long after their audio. In the context's queue they would wait
        behind audio that itself waits to be played, and leave long after they were heard.
        """
        async with self._releasing:  # both where words arrive and where audio leaves
            while words := self._words.get(context_id or ""):  # gone after an interruption
                if not (ends or self._playout.makes_audible(context_id, words[0].start_s)):
                    return
                self._output.word = word = words.popleft()
                try:
                    await self._add_word(word, context_id)
                finally:  # an interruption may end this task
                    self._output.word = None

    async def _add_word(self, word: SpokenWord, context_id: str | None) -> None:
        await self._add_word_timestamps([(word.reported, word.start_s)], context_id)
        if (frame := self._output.lost(word, context_id)) is not None:
            await self.push_frame(frame)

    async def _end_audio(self, end: AudioEndFrame) -> None:
        """Release the last words, which leave when the end of the audio is heard at the latest."""
        self._playout.end_context(self._now_s())
        await self._release_words(end.context_id, ends=True)
        if end.has_unspoken_text:
            self._output.drop_text_of(end.context_id)

    async def on_audio_context_completed(self, context_id: str) -> None:
        """Drop the state of a context that has ended; a long pause of the LLM ends one, too."""
        self._words.pop(context_id, None)
        self._starts_text |= context_id == self._text_context_id
        await super().on_audio_context_completed(context_id)

    # Frames out.

    @property
    def _playout_end_s(self) -> float:
        return self._playout.end_s(self._now_s())

    async def push_frame(
        self, frame: Frame, direction: FrameDirection = FrameDirection.DOWNSTREAM
    ) -> None:
        """Push a frame, or hold it until the audio plays that has left before it."""
        if direction is FrameDirection.UPSTREAM:
            return await super().push_frame(frame, direction)
        started = self._started
        if started and started.context_id == getattr(frame, "context_id", None):
            # Pipecat marks a frame of this context as it leaves: too late for one that is held.
            frame.interruptible = frame.interruptible and started.interruptible
        match frame:
            case AudioEndFrame():
                await self._push_rest(frame)
                return await self._end_audio(frame)
            case TTSAudioRawFrame():
                await self._wait_for_playback(_LEAD_S)
                if not self._fill_chunks(frame):
                    return None
            case TTSStartedFrame():
                await self._begin_utterance()
                self._started = frame
            case LLMAssistantPushAggregationFrame() if started:
                self._not_interrupted.discard(started.context_id)
            case KeepAliveFrame():
                return None
            case InterruptionFrame():
                await self._let_words_arrive()  # those that were heard while Pipecat handled it
            case EndFrame():
                await self._let_held_frames_leave()
            case _:
                pass
        unheard = self._unheard() if isinstance(frame, InterruptionFrame) else ""
        if self._output.receive(frame, self._now_s()):
            await super().push_frame(frame, direction)
        await self._remove_from_history(unheard)
        if self._output.is_holding:
            self._holds_nothing.clear()
            self._has_news.set()
        if isinstance(frame, TTSAudioRawFrame):
            await self._release_words(frame.context_id)
        elif isinstance(frame, TTSStoppedFrame):
            await self._commit(frame)
        if self._noise and isinstance(frame, _COMMITS):
            await self._remove_noise(frame)

    def _fill_chunks(self, frame: TTSAudioRawFrame) -> bool:
        """Leave whole chunks of the transport in `frame`, and return whether there are any.

        The rest leaves with the next frame of its context. A transport that ends one utterance
        drops what it has of a chunk of the next one.
        """
        context_id, rest = self._rest
        audio = rest + frame.audio if context_id == frame.context_id else frame.audio
        chunk_bytes = round(self._playout.chunk_s * frame.sample_rate) * BYTES_PER_SAMPLE
        end = len(audio) // chunk_bytes * chunk_bytes
        self._rest = frame.context_id, audio[end:]
        frame.audio, frame.num_frames = audio[:end], end // BYTES_PER_SAMPLE
        return bool(end)

    async def _push_rest(self, end: AudioEndFrame) -> None:
        context_id, rest = self._rest
        self._rest = None, b""
        if rest and context_id == end.context_id:
            frame = TTSAudioRawFrame(rest, end.sample_rate, 1, context_id=context_id)
            frame.interruptible = end.interruptible
            self._output.receive(frame, self._now_s())
            await super().push_frame(frame)

    async def _commit(self, stopped: TTSStoppedFrame) -> None:
        """End the message of an utterance that outlasted an interruption: its reply has ended."""
        started = self._started
        if started and started.append_to_context and stopped.context_id in self._not_interrupted:
            commit = LLMAssistantPushAggregationFrame()
            commit.interruptible = started.interruptible
            await self.push_frame(commit)

    async def _let_held_frames_leave(self) -> None:
        patience_s = self._playout.lead_s(self._now_s()) + _END_PATIENCE_S
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await self._holds_nothing.wait()

    async def _let_frames_leave(self) -> None:
        self._has_news.clear()
        while (frame := self._output.pop_due(self._now_s())) is not None:
            await super().push_frame(frame)
        if not self._output.is_holding:
            self._holds_nothing.set()
        await self._wait_for_news()

    async def _wait_for_news(self) -> None:
        now_s = self._now_s()
        wait_s = self._output.wait_s(now_s)
        overdue_s = self._output.report_overdue_s(now_s)
        try:
            async with asyncio.timeout(overdue_s if wait_s is None else wait_s):
                await self._has_news.wait()
        except TimeoutError:
            await _yield_to_others()  # a report may be on its way
            overdue_s = self._output.report_overdue_s(self._now_s())
            if overdue_s is not None and overdue_s <= 0:
                self._playout.go_on_unseen()

    async def _remove_noise(self, commit: Frame) -> None:
        """Remove words from the message of `commit`: it turned out later that they were noise."""
        noise, self._noise = self._noise, ""
        removal = HistoryCorrectionFrame(partial(without_end, end=noise))
        removal.pts = commit.pts  # or it overtakes the commit on the way through the transport
        await self.push_frame(removal)

    def _unheard(self) -> str:
        """The end of what an interruption commits that has left by estimates, and was not heard."""
        goes_on = self._started is not None and not self._started.interruptible
        return "" if goes_on else self._output.unheard(self._now_s())

    async def _remove_from_history(self, unheard: str) -> None:
        """Remove the end of the last message, if any is given; no interruption prevents that."""
        if unheard:
            removal = HistoryCorrectionFrame(partial(without_end, end=unheard))
            removal.interruptible, removal.pts = False, round(self._now_s() * 1e9)
            await super().push_frame(removal)

    async def _wait_for_playback(self, lead_s: float) -> None:
        """Wait until only `lead_s` of the audio that has left is not played yet.

        Words leave with the times of their playback, after their audio: the later they leave, the
        more of the transport's playback is known.
        """
        while (wait_s := self._playout.lead_s(self._now_s()) - lead_s) > _SHORTEST_WAIT_S:
            await asyncio.sleep(wait_s)

    async def _begin_utterance(self) -> None:
        """Pause between this utterance and one that has just ended or is still playing."""
        await self._wait_for_playback(_UTTERANCE_LEAD_S)
        pause = silence(self._playout.pause_s(self._now_s()), self._output_rate_hz)
        if pause:
            await self.push_frame(TTSAudioRawFrame(pause, self._output_rate_hz, 1))

    # What the transport plays.

    async def _receive_report(
        self, transport: BaseOutputTransport, frame: Frame, at_s: float
    ) -> None:
        if not self._concerns(transport, frame):
            return
        match frame:
            case StartFrame() if chunk_bytes := transport.audio_chunk_size:
                self._playout.transport_ready(_length_s(chunk_bytes, transport.sample_rate))
            case BotStartedSpeakingFrame():
                self._playout.transport_started(at_s)
            case TTSAudioRawFrame(audio=audio, sample_rate=sample_rate):
                self._playout.chunk_ended(_length_s(len(audio), sample_rate), at_s)
            case BotStoppedSpeakingFrame():
                self._playout.transport_stopped(at_s)
            case _:
                return
        self._has_news.set()

    def _concerns(self, transport: BaseOutputTransport, frame: Frame) -> bool:
        """Whether `frame` of `transport` is about the audio of this service alone."""
        if _output_behind(self) not in (None, transport):
            return False
        is_for_all = isinstance(frame, StartFrame)
        return is_for_all or frame.transport_destination == self._destination


class _TransportObserver(BaseObserver):
    """Observes what a transport pushes: its own frames arrive later in a busy program."""

    def __init__(
        self, report: Callable[[BaseOutputTransport, Frame, float], Awaitable[None]]
    ) -> None:
        super().__init__()
        self._report = report

    async def on_push_frame(self, data: FramePushed) -> None:
        transport = data.source
        if not isinstance(transport, BaseOutputTransport):
            return
        if data.direction is FrameDirection.DOWNSTREAM:
            await self._report(transport, data.frame, data.timestamp / 1e9)


def _length_s(audio_bytes: int, sample_rate: int) -> float:
    return audio_bytes / BYTES_PER_SAMPLE / sample_rate


async def _yield_to_others() -> None:
    for _ in range(_TURNS_BEFORE_CUT):
        await asyncio.sleep(0)


def _output_behind(processor: FrameProcessor) -> BaseOutputTransport | None:
    """The output transport after `processor`; None in a branch that ends without one."""
    while (following := processor.next) is not None:
        processor = following
        if isinstance(processor, BaseOutputTransport):
            return processor
    return None
