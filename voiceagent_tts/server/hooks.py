"""The hooks of a server, passed to `add_to_server` of a plugin's module `server`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI

from voiceagent_tts.errors import VoiceAgentError
from voiceagent_tts.server.state import ServerState


def is_below(path: str, paths: list[str]) -> bool:
    """Whether a path is one of `paths`, or below one; nothing is below the page at `/`."""
    return any(path == each or (each != "/" and path.startswith(f"{each}/")) for each in paths)


@dataclass(frozen=True, slots=True)
class ErrorForm:
    """Form of the errors on some routes.

    Attributes:
        has_path: whether a path is one of these routes.
        body: the JSON body for an error.
    """

    has_path: Callable[[str], bool]
    body: Callable[[VoiceAgentError], dict[str, Any]]


def form_of(path: str, forms: list[ErrorForm]) -> ErrorForm | None:
    """Return the form of errors on a path: the first that matches; None for OpenAI's."""
    return next((form for form in forms if form.has_path(path)), None)


@dataclass(frozen=True, slots=True)
class ServerHooks:
    """What a plugin adds to; work beside the server is added to `state`.

    Attributes:
        app: takes routes, and `server.sockets.add_socket` takes sockets.
        state: what all routes share; `audio_filter`, `file_filter`, `has_page`, `new_voices`,
            `on_start`, `before_drain`, `on_withdrawal`, `on_close`, `opener.on_request`,
            `opener.observers`, `synthesizer.proxy`, `synthesizer.voice_lexicons` and
            `voice_records.find_id` are its hooks.
        open_paths: paths that need no key, with all paths below them.
        upload_bytes: the longest body of a path that receives files.
        error_forms: how errors look on some routes; see `form_of`.
    """

    app: FastAPI
    state: ServerState
    open_paths: list[str]
    upload_bytes: dict[str, int]
    error_forms: list[ErrorForm]
