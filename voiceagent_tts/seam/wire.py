"""Commands and events of engines and aligners as ZeroMQ multipart messages, and back.

The first part is a JSON array `[name, field, ...]` in the order of the dataclass, whose own
dataclasses are arrays, too; bytes (PCM) follow as raw parts, and their number stands in their
place. Types come from the annotations. Nothing is pickled.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, TypeAlias, Union, get_args, get_origin, get_type_hints

from voiceagent_tts.core import WarningCode
from voiceagent_tts.errors import EngineError, ErrorCode
from voiceagent_tts.seam.commands import Command
from voiceagent_tts.seam.events import Event

if TYPE_CHECKING:
    from voiceagent_tts.seam.aligner_messages import AlignCommand, AlignEvent

Message: TypeAlias = "Command | Event | AlignCommand | AlignEvent"

_CODES: tuple[Any, ...] = (ErrorCode, WarningCode)
_KINDS = {kind.__name__: kind for kind in get_args(Command | Event)}

_Decoder = Callable[[Any, Sequence[bytes]], Any]
"""Makes a value of what JSON has in its place, and of the raw parts."""


def encode(message: Message) -> list[bytes]:
    """Encode a command or event as the parts of one ZeroMQ message."""
    raw: list[bytes] = []

    def as_json(value: Any) -> Any:
        if isinstance(value, bytes):
            raw.append(value)
            return len(raw)
        return _values(value.__class__)(value)

    name = type(message).__name__
    # ASCII, because lone surrogates survive only as escapes.
    head = json.dumps([name, *as_json(message)], separators=(",", ":"), default=as_json)
    return [head.encode("ascii"), *raw]


def decode(parts: Sequence[bytes]) -> Message:
    """Decode the parts of one ZeroMQ message.

    Raises:
        EngineError: the parts are no message of this version.
    """
    try:
        name, *values = json.loads(parts[0])
        return _of_kind(name)(values, parts)
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise EngineError(
            f"expected a worker message of this version, got {len(parts)} parts that do not decode "
            f"({type(error).__name__}); run server and workers from the same installation"
        ) from error


@cache
def _of_kind(name: str) -> _Decoder:
    if name in _KINDS:
        return _of_dataclass(_KINDS[name])
    from voiceagent_tts.seam.aligner_messages import KINDS  # here: some engines need no aligner

    return _of_dataclass(KINDS[name])


@cache
def _values(kind: type) -> Callable[[Any], Sequence[Any]]:
    """Returns the values of the fields of a dataclass."""
    names = [field.name for field in fields(kind)]
    read = attrgetter(*names)
    return read if len(names) > 1 else lambda message: (read(message),)


@cache
def _decoder(kind: Any) -> _Decoder | None:
    """Return the decoder of an annotation; None where JSON has the value itself."""
    arguments = get_args(kind)
    if is_dataclass(kind):
        return _of_dataclass(kind)
    if kind is bytes:
        return _raw_part
    if kind in _CODES:
        code: Callable[[Any], Any] = kind
        return lambda value, _: code(value)
    if get_origin(kind) is tuple:
        return _of_tuple(_decoder(arguments[0]))
    if get_origin(kind) in (Union, UnionType) and NoneType in arguments:
        (some,) = (each for each in arguments if each is not NoneType)
        given = _decoder(some)
        return given and (lambda value, parts: None if value is None else given(value, parts))
    return None


def _of_tuple(item: _Decoder | None) -> _Decoder:
    if item is None:
        return lambda values, _: tuple(values)
    return lambda values, parts: tuple([item(value, parts) for value in values])


def _raw_part(number: int, parts: Sequence[bytes]) -> bytes:
    return parts[number]


def _of_dataclass(kind: Any) -> _Decoder:
    types = get_type_hints(kind)
    decoders = enumerate(_decoder(types[field.name]) for field in fields(kind))
    special = [(place, decoder) for place, decoder in decoders if decoder is not None]

    def decode_fields(values: list[Any], parts: Sequence[bytes]) -> Any:
        for place, decoder in special:
            values[place] = decoder(values[place], parts)
        return kind(*values)

    return decode_fields
