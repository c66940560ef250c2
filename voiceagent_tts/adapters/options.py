"""The options that users of both hosts give: their checks, and what follows from them.

A wrong option is refused where it is given, by `InvalidRequestError`: in a turn it would only mute
the agent.
"""

import math
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, TypeGuard, Unpack, cast, get_args

from voiceagent_tts.client import authorization, configured_key, configured_url, websocket_address
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.protocol.client_connection import OpenOptions, VoiceOptions, check_options
from voiceagent_tts.protocol.messages import AudioFormat, SampleRate
from voiceagent_tts.text.language import normalize_language

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""Source: RFC 9110, 5.6.2."""


def checked_connection(
    url: str | None, api_key: str | None, extra_headers: Mapping[str, str] | None
) -> tuple[str, dict[str, str]]:
    """The address of the server's WebSocket, and the headers of every request."""
    check_strings(url=url, api_key=api_key)
    address = websocket_address(configured_url(url))
    key = authorization(configured_key(api_key))
    headers = {} if extra_headers is None else extra_headers
    _check_headers(headers)
    return address, {**headers, **key}


def is_refused_key(status: int) -> bool:
    """Whether a handshake that gets this HTTP status fails until the user gives another key.

    Any other status may be that of a proxy, or of another program, while the server restarts.
    """
    return status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


def check_strings(**options: object) -> None:
    """Check options that are strings, or None; a message has no value, which may be secret."""
    check_kind(str, "a string", **options)


def check_kind(kind: type, expected: str, **options: object) -> None:
    """Check options that are objects of `kind`, or None; a message has no value."""
    for name, value in options.items():
        if not (value is None or isinstance(value, kind)):
            raise InvalidRequestError(
                f"{name}: expected {expected}, got {type(value).__name__}",
                code=ErrorCode.INVALID_PARAM,
            )


def _check_headers(headers: object) -> None:
    """The message has no value, which may be secret."""
    if not isinstance(headers, Mapping):
        raise _wrong("extra_headers", "a mapping of names to values", type(headers).__name__)
    for name, value in cast("Mapping[object, object]", headers).items():
        if not (isinstance(name, str) and _HEADER_NAME.fullmatch(name)):
            raise _wrong("extra_headers", "names without spaces and separators", name)
        if not (isinstance(value, str) and value.isascii() and value.isprintable()):
            raise InvalidRequestError(
                f"extra_headers: expected printable ASCII characters on one line as {name}, got "
                + ("other characters" if isinstance(value, str) else type(value).__name__),
                code=ErrorCode.INVALID_PARAM,
            )


def unknown_options(options: Mapping[str, object]) -> list[str]:
    """The names in `options` that are no options of the speech.

    Audio and timestamps are none: the hosts choose them.
    """
    return sorted(options.keys() - VoiceOptions.__annotations__.keys())


def open_options(speech: Mapping[str, object], sample_rate: SampleRate) -> OpenOptions:
    """The options of the server contexts that speak a turn; the server chooses those left None.

    It detects the language then, which may also be asked for as "auto".
    """
    given: dict[str, Any] = {name: value for name, value in speech.items() if value is not None}
    if given.get("language") == "auto":
        del given["language"]
    return OpenOptions(**given, audio=AudioFormat(sample_rate=sample_rate))


def check_speech(**options: Unpack[OpenOptions]) -> None:
    """Check how a turn is spoken, in a language that a server knows."""
    check_options(**options)
    if (language := options.get("language")) is not None:
        normalize_language(language)


def check_sample_rate(sample_rate: object) -> None:
    """Check the sample rate of the audio, in Hz: servers have few."""
    rates = get_args(SampleRate)
    if type(sample_rate) is not int or sample_rate not in rates:
        raise _wrong("sample_rate", f"one of {', '.join(map(str, rates))}", sample_rate)


def check_not_negative(**options: object) -> None:
    """Check options that are lengths or times: neither negative nor infinite."""
    for name, value in options.items():
        if not (_is_finite(value) and value >= 0):
            raise _wrong(name, "0 or more", value)


def check_count(**options: object) -> None:
    """Check options that are counts."""
    for name, value in options.items():
        if type(value) is not int or value < 0:
            raise _wrong(name, "a whole number, 0 or more", value)


def check_positive(**options: object) -> None:
    """Check options that are intervals: above 0, and not infinite."""
    for name, value in options.items():
        if not (_is_finite(value) and value > 0):
            raise _wrong(name, "a number above 0", value)


def _is_finite(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and type(value) is not bool and math.isfinite(value)


def _wrong(name: str, expected: str, value: object) -> InvalidRequestError:
    return InvalidRequestError(
        f"{name}: expected {expected}, got {value!r}", code=ErrorCode.INVALID_PARAM
    )
