"""Requests to a running server over HTTP, with errors that explain a missing answer."""

import contextlib
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from typing import TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from voiceagent_tts.client import (
    authorization,
    connection_problem,
    http_address,
    server_message,
)
from voiceagent_tts.errors import InvalidRequestError

_Answer = TypeVar("_Answer")

_TIMEOUT_S = 10.0
_STRANGE = "the reply is not that of a voiceagent-tts server"


def ask(
    url: str,
    path: str,
    api_key: str | None,
    read: Callable[[bytes], _Answer],
) -> _Answer:
    """The server's answer.

    Args:
        url: the server, as for `websocket_address`.
        path: path of the route.
        api_key: key of the caller; None for none.
        read: parses the body of the reply; raises `ValueError`, `TypeError` or `KeyError` if the
            reply is from another server.

    Raises:
        InvalidRequestError: no server answers there, or it refuses; the message says which.
    """
    parts = urlsplit(http_address(url, path))
    place = parts.netloc.rpartition("@")[2]  # messages show no secrets
    address = parts._replace(netloc=place).geturl()
    request = urllib.request.Request(address, headers=authorization(api_key))
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
            return read(response.read())
    except HTTPError as error:
        reason = f"HTTP {error.code}: {_reason(error)}"
    except URLError as error:
        raise InvalidRequestError(connection_problem(place, error)) from error
    except (OSError, HTTPException) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
    except (ValueError, TypeError, KeyError):
        reason = _STRANGE
    raise InvalidRequestError(f"{address}: {reason}")


def _reason(error: HTTPError) -> str:
    """The server's own message, where the reply has one."""
    with contextlib.suppress(OSError, HTTPException):  # the reply may break off
        return server_message(error.read()) or _STRANGE
    return _STRANGE
