"""The address of a server, and the header that carries an API key."""

from urllib.parse import urlsplit, urlunsplit

from voiceagent_tts.errors import ErrorCode, InvalidRequestError

DEFAULT_PATH = "/v1/tts/ws"


def checked_url(url: str) -> str:
    """`url` with a path; `/v1/tts/ws` if it has none.

    Raises:
        InvalidRequestError: it is not the address of a WebSocket.
    """
    expected = "url: expected ws://host or wss://host"
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna")
        port = parts.port
    except ValueError as error:  # its text may show a password
        raise InvalidRequestError(
            f"{expected}, got an impossible host or port", code=ErrorCode.INVALID_PARAM
        ) from error
    if parts.scheme not in ("ws", "wss") or not host or port == 0:
        raise InvalidRequestError(
            f"{expected}, got {parts.scheme or 'no'} scheme, host {parts.hostname}, port {port}",
            code=ErrorCode.INVALID_PARAM,
        )
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") or DEFAULT_PATH))


def public_address(url: str) -> str:
    """Host and port of `url`, without the secrets that its other parts may carry."""
    return urlsplit(url).netloc.rpartition("@")[2]


def authorization(api_key: str | None) -> dict[str, str]:
    """The header that carries an API key; empty without a key.

    Raises:
        InvalidRequestError: the key has characters that no header can carry, such as a line end
            from the file that it was read from.
    """
    if api_key is None:
        return {}
    if not (api_key.isascii() and api_key.isprintable()):
        raise InvalidRequestError(
            "api_key: expected printable ASCII characters on one line, got other characters",
            code=ErrorCode.INVALID_PARAM,
        )
    return {"Authorization": f"Bearer {api_key}"}
