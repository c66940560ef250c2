"""Commands and events of engines and aligners as ZeroMQ multipart messages, and back.

The first part is a JSON array `[tag, field, ...]` in the order of the dataclass; bytes (PCM)
follow as raw parts. Nothing is pickled. This module knows no sockets.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import astuple, fields
from itertools import starmap
from typing import Any, cast

from voiceagent_tts.core import AudioChunk, Reading, WarningCode, Word, WordTimestamp
from voiceagent_tts.errors import EngineError, ErrorCode
from voiceagent_tts.seam.aligner_messages import (
    AlignCommand,
    Aligned,
    AlignEvent,
    Expect,
    Finish,
    Follow,
)
from voiceagent_tts.seam.commands import (
    Append,
    Cancel,
    Command,
    Credit,
    Flush,
    Prepare,
    SpeechOptions,
    Submit,
)
from voiceagent_tts.seam.events import (
    AudioStep,
    Cancelled,
    Capabilities,
    ContextAudio,
    Done,
    Event,
    Failed,
    Ready,
    SegmentEnd,
    Stats,
    VoiceDetails,
    Warned,
    Words,
)

Message = Command | Event | AlignCommand | AlignEvent

_PLAIN: dict[str, type[Message]] = {
    "flush": Flush,
    "cancel": Cancel,
    "credit": Credit,
    "segment_end": SegmentEnd,
    "done": Done,
    "cancelled": Cancelled,
    "stats": Stats,
    "follow": Follow,
    "finish": Finish,
}
_TAGS = {kind: tag for tag, kind in _PLAIN.items()}
_FIELDS = {kind: tuple(field.name for field in fields(kind)) for kind in _PLAIN.values()}


def encode(message: Message) -> list[bytes]:
    """Encode a command or event as the parts of one ZeroMQ message."""
    match message:
        case Submit() | Append() | Prepare():
            tag = type(message).__name__.lower()
            return [_json([tag, *astuple(message)])]
        case AudioStep(rows):
            header = ["audio", [[row.context, row.chunk.start_sample] for row in rows]]
            return [_json(header), *(row.chunk.pcm for row in rows)]
        case Words(context, words, is_cached):
            return [_json(["words", context, [_pack_word(word) for word in words], is_cached])]
        case Expect(context, words):
            plain = [[word.text, word.char_start, word.char_end] for word in words]
            return [_json(["expect", context, plain])]
        case Aligned(context, words, tentative, end_sample):
            known = [[_pack_word(word) for word in row] for row in (words, tentative)]
            return [_json(["aligned", context, *known, end_sample])]
        case Ready(capabilities):
            return [_json(["ready", *astuple(capabilities)])]
        case Failed(context, code, text, retry_after_ms):
            return [_json(["failed", context, code.value, text, retry_after_ms])]
        case Warned(context, code, text):
            return [_json(["warned", context, code.value, text])]
        case _:
            kind = type(message)
            return [_json([_TAGS[kind], *(getattr(message, name) for name in _FIELDS[kind])])]


def decode(parts: Sequence[bytes]) -> Message:
    """Decode the parts of one ZeroMQ message.

    Raises:
        EngineError: the parts are no message of this version.
    """
    try:
        tag, *values = json.loads(parts[0])
        if tag in _PLAIN:
            return cast("Callable[..., Message]", _PLAIN[tag])(*values)
        return _SPECIAL[tag](values, parts[1:])
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise EngineError(
            f"expected a worker message of this version, got {len(parts)} parts that do not decode "
            f"({type(error).__name__}); run server and workers from the same installation"
        ) from error


def _json(value: list[Any]) -> bytes:
    # ASCII, because lone surrogates survive only as escapes.
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def _pack_word(timestamp: WordTimestamp) -> list[Any]:
    word = timestamp.word
    return [
        word.text,
        word.char_start,
        word.char_end,
        timestamp.start_sample,
        timestamp.end_sample,
        timestamp.confidence,
    ]


def _unpack_word(values: list[Any]) -> WordTimestamp:
    text, char_start, char_end, start_sample, end_sample, confidence = values
    return WordTimestamp(Word(text, char_start, char_end), start_sample, end_sample, confidence)


def _submit(values: list[Any], _parts: Sequence[bytes]) -> Submit:
    *plain, options, readings, traceparent, continues, voice_version = values
    return Submit(
        *plain,
        options=SpeechOptions(*options),
        readings=_readings(readings),
        traceparent=traceparent,
        continues=continues,
        voice_version=tuple(voice_version),
    )


def _append(values: list[Any], _parts: Sequence[bytes]) -> Append:
    *plain, readings = values
    return Append(*plain, readings=_readings(readings))


def _readings(values: list[list[Any]]) -> tuple[Reading, ...]:
    return tuple(starmap(Reading, values))


def _prepare(values: list[Any], _parts: Sequence[bytes]) -> Prepare:
    *plain, options, voice_version = values
    return Prepare(*plain, options=SpeechOptions(*options), voice_version=tuple(voice_version))


def _audio(values: list[Any], parts: Sequence[bytes]) -> AudioStep:
    rows = zip(values[0], parts, strict=True)
    return AudioStep(tuple(ContextAudio(c, AudioChunk(start, pcm)) for (c, start), pcm in rows))


def _words(values: list[Any], _parts: Sequence[bytes]) -> Words:
    context, words, is_cached = values
    return Words(context, tuple(_unpack_word(word) for word in words), is_cached)


def _expect(values: list[Any], _parts: Sequence[bytes]) -> Expect:
    return Expect(values[0], tuple(Word(*word) for word in values[1]))


def _aligned(values: list[Any], _parts: Sequence[bytes]) -> Aligned:
    context, *known, end_sample = values
    words, tentative = (tuple(_unpack_word(word) for word in row) for row in known)
    return Aligned(context, words, tentative, end_sample)


def _ready(values: list[Any], _parts: Sequence[bytes]) -> Ready:
    tupled: list[Any] = [tuple(cast("list[Any]", v)) if isinstance(v, list) else v for v in values]
    *others, details = tupled
    return Ready(Capabilities(*others, voice_details=tuple(starmap(VoiceDetails, details))))


def _failed(values: list[Any], _parts: Sequence[bytes]) -> Failed:
    context, code, text, retry_after_ms = values
    return Failed(context, ErrorCode(code), text, retry_after_ms)


def _warned(values: list[Any], _parts: Sequence[bytes]) -> Warned:
    context, code, text = values
    return Warned(context, WarningCode(code), text)


_SPECIAL: dict[str, Callable[[list[Any], Sequence[bytes]], Message]] = {
    "submit": _submit,
    "append": _append,
    "prepare": _prepare,
    "audio": _audio,
    "words": _words,
    "expect": _expect,
    "aligned": _aligned,
    "ready": _ready,
    "failed": _failed,
    "warned": _warned,
}
