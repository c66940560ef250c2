"""The address of a server, and the header that carries an API key."""

import errno
import json
import os
import re
from http import HTTPStatus
from urllib.error import URLError
from urllib.parse import urlsplit, urlunsplit

from voiceagent_tts.errors import ErrorCode, InvalidRequestError

DEFAULT_PATH = "/v1/tts/ws"
DEFAULT_URL = f"ws://127.0.0.1:8765{DEFAULT_PATH}"
VOICES_PATH = "/v1/audio/voices"
TRY_TLS = "a server with TLS has an address that begins with wss://"

_WEBSOCKET_SCHEMES = {"ws": "ws", "wss": "wss", "http": "ws", "https": "wss"}
_HOST_AND_PORT = re.compile(r"[\w.-]+(:\d{1,5})?(/[\w./-]*)?")


def websocket_address(url: str) -> str:
    """The address of a server's WebSocket, from any common form of a server's address.

    That is `ws://`, `wss://`, `http://` (means `ws://`) or `https://` (means `wss://`) and a host;
    without a path, `/v1/tts/ws` is added.

    Raises:
        InvalidRequestError: `url` is not the address of a server.
    """
    _check_string("url", url)
    expected = "url: expected ws://host or wss://host (http:// and https:// mean the same)"
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna")
        port = parts.port
    except ValueError as error:  # its text may show a password
        raise InvalidRequestError(
            f"{expected}, got an impossible host or port", code=ErrorCode.INVALID_PARAM
        ) from error
    if parts.scheme not in _WEBSOCKET_SCHEMES or not host or port == 0:
        got = f"got {parts.scheme or 'no'} scheme, host {parts.hostname}, port {port}"
        if _HOST_AND_PORT.fullmatch(url):  # anything else may hold a password
            got = f"got {url}; try ws://{url}"
        raise InvalidRequestError(f"{expected}, {got}", code=ErrorCode.INVALID_PARAM)
    path = parts.path.rstrip("/") or DEFAULT_PATH
    return urlunsplit(parts._replace(scheme=_WEBSOCKET_SCHEMES[parts.scheme], path=path))


def _check_string(name: str, value: object) -> None:
    """The message has no value, which may be secret."""
    if not isinstance(value, str):
        raise InvalidRequestError(
            f"{name}: expected a string, got {type(value).__name__}", code=ErrorCode.INVALID_PARAM
        )


def http_address(url: str, path: str) -> str:
    """The address of an HTTP route beside a server's WebSocket, behind the same proxy.

    A prefix of the WebSocket's path precedes that of the route.

    Raises:
        InvalidRequestError: `url` is not the address of a server.
    """
    parts = urlsplit(websocket_address(url))
    prefix, _, rest = parts.path.rpartition(DEFAULT_PATH)
    scheme = "https" if parts.scheme == "wss" else "http"
    return urlunsplit((scheme, parts.netloc, ("" if rest else prefix) + path, "", ""))


def public_address(url: str) -> str:
    """Host and port of `url`, without the secrets that its other parts may carry."""
    return urlsplit(url).netloc.rpartition("@")[2]


def connection_problem(place: str, error: Exception) -> str:
    """The message for a server that cannot be reached, with a remedy if none is running.

    `place` is its address without secrets.
    """
    cause = error.reason if isinstance(error, URLError) else error
    reason = " ".join(str(cause).split()) or type(cause).__name__
    # A name with several addresses raises one error that quotes those of all.
    if isinstance(cause, ConnectionRefusedError) or f"[Errno {errno.ECONNREFUSED}]" in reason:
        return f"no server at {place}; start one with `voiceagent-tts serve`"
    if speaks_no_tls(cause):
        reason += "; a server without TLS has an address that begins with ws://"
    return f"no connection to {place}: {reason}"


def speaks_no_tls(error: object) -> bool:
    """Whether a connection failed because the server answered TLS without TLS."""
    return getattr(error, "reason", None) in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")


def server_message(body: bytes | bytearray | None) -> str | None:
    """The error message in an HTTP reply of this project's server, on one line; else None."""
    try:
        return " ".join(str(json.loads(body or b"")["error"]["message"]).split())
    except (ValueError, KeyError, TypeError):
        return None


def authorization(api_key: str | None) -> dict[str, str]:
    """The header that carries an API key; empty without a key.

    Raises:
        InvalidRequestError: the key is no string, or has characters that no header can carry, such
            as a line end from the file that it was read from.
    """
    if api_key is None:
        return {}
    _check_string("api_key", api_key)
    if not (api_key.isascii() and api_key.isprintable()):
        raise InvalidRequestError(
            "api_key: expected printable ASCII characters on one line, got other characters",
            code=ErrorCode.INVALID_PARAM,
        )
    return {"Authorization": f"Bearer {api_key}"}


def configured_url(url: str | None) -> str:
    """The server of an adapter: `url`, or that of `VOICEAGENT_TTS_URL`, or one on this machine."""
    return url or os.environ.get("VOICEAGENT_TTS_URL") or DEFAULT_URL


def configured_key(api_key: str | None) -> str | None:
    """The key of an adapter: `api_key`, or that of `VOICEAGENT_TTS_API_KEY`."""
    return api_key or os.environ.get("VOICEAGENT_TTS_API_KEY") or None


def refusal(status: int, url: str) -> str:
    """The message for a server that answers with an HTTP error, with a remedy if one is known.

    `url` is what was asked: the WebSocket, or the list of voices.
    """
    place, path = public_address(url), urlsplit(url).path
    sentence = f"the server answered with HTTP {status}"
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        return f"{sentence}: it drains, or does not serve yet"
    if status == HTTPStatus.NOT_FOUND and path in (DEFAULT_PATH, VOICES_PATH):
        return f"{sentence}: {place} is another program, or a proxy that does not pass on {path}"
    if status == HTTPStatus.NOT_FOUND:
        return f"{sentence}: try the address without its path; the socket is at {DEFAULT_PATH}"
    if status not in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return sentence
    return f"{sentence}: expected a valid key; set VOICEAGENT_TTS_API_KEY, or pass `api_key`"
