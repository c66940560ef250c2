"""vLLM-Omni's dialect (`/v1/audio/speech/stream`), with the word times that Baseten adds to it.

A client configures a socket once. Text arrives in pieces. `input.done` ends an utterance, which is
one context of `tts.v1`, but not the socket. Audio leaves in pieces that the dialect calls
sentences, each between `audio.start` and `audio.done`; times count from `audio.start`. Text is
spoken as it arrives, without waiting for `input.done`. This module knows no I/O, no clock and no
engine.

If words are requested in `audio.done` and no split is configured, a "sentence" ends as soon as the
next words are known, and its `audio.done` names words that sound *after* it. So words arrive before
they are heard, as an agent needs at an interruption. After their own sentence they would be late.

Source: vLLM-Omni 0.30 (`serving_speech_stream.py`, `protocol/audio.py`), and the messages of the
Baseten plugin of LiveKit Agents 1.8.
"""

from base64 import b64encode
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_json

from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, ms_to_samples, samples_to_ms
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.plugins.dialects.shared import known_ends_ms
from voiceagent_tts.plugins.dialects.vllm_omni_messages import (
    CLIENT_MESSAGE,
    InputDone,
    InputText,
    SessionClose,
    SessionConfig,
    VoiceAdd,
    VoiceList,
)
from voiceagent_tts.plugins.speech.encoding import silent_reply
from voiceagent_tts.protocol.messages import (
    AudioBase64Message,
    AudioMessage,
    Close,
    ContextEnd,
    ContextText,
    DoneMessage,
    ErrorMessage,
    Prepare,
    ServerMessage,
    WordsMessage,
)
from voiceagent_tts.protocol.refusals import RefusedMessageError, refusal_of
from voiceagent_tts.protocol.server_connection import (
    Answer,
    Command,
    Dialect,
    WireMessages,
    refuse_if_big,
)

_ENDS = {"sentence": ".!?…。！？।", "clause": ".!?…。！？।,;:，、；：", "none": ""}
_MOST_UNANSWERED = 1024
"""Utterances without `session.done`: those behind one that is being spoken are kept, and all are
answered in one turn of the event loop when it ends."""
_CLOSING = "\"')]}»”’」』）"


@dataclass(frozen=True, slots=True)
class _Word:
    text: str
    start_sample: int
    end_sample: int


@dataclass(slots=True)
class _Sentence:
    """Audio sent since the last `audio.start`."""

    start_sample: int
    sample_end: int
    chunks: int = 0

    @property
    def total_bytes(self) -> int:
        return (self.sample_end - self.start_sample) * BYTES_PER_SAMPLE


@dataclass(slots=True)
class _Utterance:
    """Text between two `input.done`, and what was sent for it."""

    index: int
    config: SessionConfig
    context_id: str | None = None
    """The context that speaks the utterance; None before its first text and after its `done`."""
    is_ended: bool = False
    has_failed: bool = False
    is_blank: bool = True
    sentences: int = 0
    sentence: _Sentence | None = None
    sample_end: int = 0
    """Number of samples of the context that have been sent."""
    words: deque[_Word] = field(default_factory=deque["_Word"])
    """Words known to the dialect, but not sent to the client."""
    borders: deque[int] = field(default_factory=deque[int])
    """Starts of the next sentences, in samples of the context."""
    has_sentence_end: bool = False
    """Whether the last known word ended a sentence."""

    @property
    def is_answered(self) -> bool:
        """Whether only `session.done` has not been sent."""
        return self.is_ended and self.context_id is None


class VllmOmni(Dialect):
    """Translates the messages of one vLLM-Omni socket."""

    is_sequential = True

    def __init__(self, voices: Callable[[], Sequence[str]]) -> None:
        self._voices = voices
        self._config: SessionConfig | None = None
        self._utterances: deque[_Utterance] = deque()  # those without `session.done`, in order
        self._utterances_begun = 0
        self._contexts_opened = 0

    # Messages from the client.

    def read(self, data: str, max_bytes: int) -> list[Command]:
        """See `Dialect.read`."""
        try:
            message = CLIENT_MESSAGE.validate_json(data)
        except ValidationError as error:
            raise refusal_of(error) from None  # the cause holds the client's text
        refuse_if_big(data, max_bytes, message.type)
        match message:
            case SessionConfig():
                return self._configure(message)
            case InputText(text=text):
                return self._add_text(text) if text else []
            case InputDone():
                return self._end_utterance()
            case SessionClose():
                return [Close()]
            case VoiceList():
                return [Answer(partial(_voice_list, self._voices))]
            case VoiceAdd():
                raise RefusedMessageError(
                    "voice.add: clone voices on the server with `voiceagent-tts voices add`",
                    code=ErrorCode.INVALID_PARAM,
                )

    def _configure(self, config: SessionConfig) -> list[Command]:
        if self._current() is not None:
            raise RefusedMessageError(
                "session.config: expected input.done first, which ends the utterance in progress",
                code=ErrorCode.INVALID_MESSAGE,
            )
        self._config = config
        return [Prepare(voice=config.voice, language=config.language, instruct=config.instructions)]

    def _add_text(self, text: str) -> list[Command]:
        utterance = self._current() or self._begin_utterance("input.text")
        if utterance.has_failed:
            return []  # the client may not have read the error yet
        utterance.is_blank = utterance.is_blank and not text.strip()
        commands: list[Command] = []
        if utterance.context_id is None:
            self._contexts_opened += 1
            utterance.context_id = f"utterance-{self._contexts_opened}"
            utterance.sample_end, utterance.has_sentence_end = 0, False
            utterance.borders.clear()
            commands.append(utterance.config.to_open(utterance.context_id))
        return [*commands, ContextText(context_id=utterance.context_id, text=text)]

    def _end_utterance(self) -> list[Command]:
        utterance = self._current() or self._begin_utterance("input.done")
        utterance.is_ended = True
        if utterance.context_id is not None:
            return [ContextEnd(context_id=utterance.context_id)]
        return [Answer(data) for data in self._settle()]

    def _current(self) -> _Utterance | None:
        """The utterance that accepts text."""
        newest = self._utterances[-1] if self._utterances else None
        return None if newest is None or newest.is_ended else newest

    def _begin_utterance(self, name: str) -> _Utterance:
        if self._config is None:
            raise RefusedMessageError(
                f"{name}: expected session.config first", code=ErrorCode.INVALID_MESSAGE
            )
        if len(self._utterances) >= _MOST_UNANSWERED:
            raise RefusedMessageError(
                f"{name}: expected at most {_MOST_UNANSWERED} utterances without session.done; "
                "wait for some",
                code=ErrorCode.TOO_MANY_CONTEXTS,
            )
        self._utterances.append(_Utterance(self._utterances_begun, self._config))
        self._utterances_begun += 1
        return self._utterances[-1]

    # Messages to the client.

    def write(self, message: ServerMessage | AudioMessage) -> WireMessages:
        """See `Dialect.write`."""
        match message:
            case AudioMessage():
                return self._audio(self._utterances[0], message)
            case WordsMessage():
                return self._add_words(self._utterances[0], message)
            case ErrorMessage():
                return [_encode("error", message=message.message, code=message.code)]
            case DoneMessage():
                return self._done(message)
            case AudioBase64Message():
                raise AssertionError("contexts of this dialect have binary audio")
            case _:
                return []  # this dialect has no such message

    def _audio(self, utterance: _Utterance, message: AudioMessage) -> WireMessages:
        messages: WireMessages = []
        start, pcm = message.sample_offset, message.pcm
        end = start + len(pcm) // BYTES_PER_SAMPLE
        while utterance.borders and utterance.borders[0] < end:
            border = max(start, utterance.borders.popleft())
            size = (border - start) * BYTES_PER_SAMPLE
            messages += [*_sound(utterance, pcm[:size]), *_end_sentence(utterance)]
            start, pcm = border, pcm[size:]
        return [*messages, *_sound(utterance, pcm)]

    def _add_words(self, utterance: _Utterance, message: WordsMessage) -> WireMessages:
        times = zip(message.words, message.start_ms, known_ends_ms(message), strict=True)
        words = [_Word(text, ms_to_samples(a), ms_to_samples(b)) for text, a, b in times]
        config = utterance.config
        utterance.words.extend(words)
        if config.sends_words_ahead:
            return [*_begin_sentence(utterance), *_end_sentence(utterance)]
        for word in words:
            if utterance.has_sentence_end:
                utterance.borders.append(word.start_sample)
            last = word.text.rstrip(_CLOSING)[-1:]
            utterance.has_sentence_end = last in _ENDS[config.split_granularity or "sentence"]
        if config.timestamp_type and config.timestamp_transport_strategy == "async":
            begun = _begin_sentence(utterance)
            return [*begun, _event(utterance, "audio.timestamps", **_alignment(utterance, words))]
        return []

    def _done(self, message: DoneMessage) -> WireMessages:
        utterance = next(u for u in self._utterances if u.context_id == message.context_id)
        messages: WireMessages = []
        is_silent = not (utterance.sample_end or utterance.is_blank)
        if is_silent and message.reason == "complete":
            messages += _sound(utterance, silent_reply())
        if utterance.words:
            messages += _begin_sentence(utterance)  # words are sent even without audio
        utterance.has_failed = message.reason == "error"
        utterance.context_id = None
        return [*messages, *_end_sentence(utterance), *self._settle()]

    def _settle(self) -> list[str]:
        """`session.done` of the complete utterances, in order, up to the first incomplete one."""
        messages: list[str] = []
        while self._utterances and self._utterances[0].is_answered:
            utterance = self._utterances.popleft()
            done = {"utterance_index": utterance.index, "total_sentences": utterance.sentences}
            messages.append(_encode("session.done", **done))
        return messages


def _voice_list(voices: Callable[[], Sequence[str]]) -> list[str]:
    """The answer to `voice.list`: the records of all clones are read, if there are some."""
    return [_encode("voice.list", voices=voices(), uploaded_voices=[])]


def _sound(utterance: _Utterance, pcm: bytes) -> WireMessages:
    """Samples of the current sentence; starts one if there is none."""
    if not pcm:
        return []
    messages = _begin_sentence(utterance)
    sentence = utterance.sentence
    assert sentence is not None
    start = sentence.sample_end
    utterance.sample_end += len(pcm) // BYTES_PER_SAMPLE
    sentence.sample_end = utterance.sample_end
    if not utterance.config.word_timestamps:
        return [*messages, pcm]
    return [*messages, _chunk(utterance, sentence, start, pcm)]


def _begin_sentence(utterance: _Utterance) -> WireMessages:
    if utterance.sentence is not None:
        return []
    utterance.sentence = _Sentence(utterance.sample_end, utterance.sample_end)
    utterance.sentences += 1
    border = utterance.borders[0] if utterance.borders else None
    words = [w.text for w in utterance.words if border is None or w.start_sample < border]
    fields = {
        "sentence_text": " ".join(words),
        "format": "pcm",
        "sample_rate": SAMPLE_RATE_HZ,
    }
    return [_event(utterance, "audio.start", **fields)]


def _end_sentence(utterance: _Utterance) -> WireMessages:
    sentence, config = utterance.sentence, utterance.config
    if sentence is None:
        return []
    words = _words_to_send(utterance)
    messages: WireMessages = []
    if config.word_timestamps:
        messages.append(_chunk(utterance, sentence, sentence.start_sample, b"", words))
    alignment: dict[str, Any] = {}
    if config.timestamp_type and config.timestamp_transport_strategy == "sync":
        alignment = {"timestamp_info": _alignment(utterance, words)}
    fields = {"total_bytes": sentence.total_bytes, "error": utterance.has_failed, **alignment}
    messages.append(_event(utterance, "audio.done", **fields))
    utterance.sentence = None
    return messages


def _words_to_send(utterance: _Utterance) -> list[_Word]:
    """Remove and return the words that belong into the end of the sentence."""
    is_last = utterance.context_id is None
    words: list[_Word] = []
    while utterance.words and (
        is_last
        or utterance.config.sends_words_ahead
        or utterance.words[0].start_sample < utterance.sample_end
    ):
        words.append(utterance.words.popleft())
    return words


def _alignment(utterance: _Utterance, words: list[_Word]) -> dict[str, Any]:
    """Baseten's form of word times: seconds from the sentence's first sample."""
    assert utterance.sentence is not None
    base = utterance.sentence.start_sample
    return {
        "word_alignment": {
            "words": [word.text for word in words],
            "word_start_times_seconds": [(w.start_sample - base) / SAMPLE_RATE_HZ for w in words],
            "word_end_times_seconds": [(w.end_sample - base) / SAMPLE_RATE_HZ for w in words],
        }
    }


def _chunk(
    utterance: _Utterance,
    sentence: _Sentence,
    start_sample: int,
    pcm: bytes,
    words: list[_Word] | None = None,
) -> str:
    """vLLM-Omni's form of audio; after the last chunk of a sentence, its words in milliseconds."""
    base = sentence.start_sample
    timestamps = words and [
        {
            "word": word.text,
            "start_ms": samples_to_ms(word.start_sample - base),
            "end_ms": samples_to_ms(word.end_sample - base),
        }
        for word in words
    ]
    sentence.chunks += 1
    return _event(
        utterance,
        "audio.chunk",
        chunk_id=sentence.chunks - 1,
        chunk_start_ms=samples_to_ms(start_sample - base),
        chunk_end_ms=samples_to_ms(sentence.sample_end - base),
        sample_rate=SAMPLE_RATE_HZ,
        audio_b64=b64encode(pcm).decode(),
        timestamps=timestamps,
    )


def _event(utterance: _Utterance, kind: str, **fields: Any) -> str:
    place = {"utterance_index": utterance.index, "sentence_index": utterance.sentences - 1}
    return _encode(kind, **place, **fields)


def _encode(kind: str, **fields: Any) -> str:
    return to_json({"type": kind, **fields}).decode()
