"""State that all routes share: settings, metrics, the synthesizer and the open sockets."""

import asyncio
import contextlib
import functools
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool
from starlette.types import Scope as AsgiScope

from voiceagent_tts import __version__
from voiceagent_tts.audio.output import AudioFilter
from voiceagent_tts.config import Settings
from voiceagent_tts.errors import (
    ErrorCode,
    InvalidRequestError,
    OverloadedError,
    UnauthorizedError,
    VoiceAgentError,
)
from voiceagent_tts.hooks import plugin_modules
from voiceagent_tts.protocol.messages import ProvenanceFields
from voiceagent_tts.seam.engine_kind import WorkerSpec, kind_of
from voiceagent_tts.server.admission import ContextOpener
from voiceagent_tts.server.callers import Caller, audit
from voiceagent_tts.server.held import RecentTexts
from voiceagent_tts.server.metrics import Metrics
from voiceagent_tts.server.watchdog import Watchdog
from voiceagent_tts.settings.group import check_rights, refused
from voiceagent_tts.synthesizer.options import Limits
from voiceagent_tts.synthesizer.synthesizer import Synthesizer
from voiceagent_tts.synthesizer.workers import Supervisor

if TYPE_CHECKING:
    from voiceagent_tts.clones import SeenClones, VoiceFolder
    from voiceagent_tts.lexicon import Entries
    from voiceagent_tts.server.access import Access
    from voiceagent_tts.word_times.processes import Aligners

SLOW_CONSUMER_S = 15.0  # time after which a WebSocket that does not read is closed (4008)
CLOSE_GRACE_S = 2.0
"""Time for a client to read the close of its socket, before the connection is aborted."""

_DRAIN_INTERVAL_S = 0.02

AudioFile = bytes | bytearray
FileFilter = Callable[[AudioFile, str, ProvenanceFields], Awaitable[AudioFile]]
"""Changes a complete audio file, given its format (such as `wav`) and its provenance."""


class _OpenSocket(Protocol):
    """The part of `websocket.Session` that the server itself uses."""

    caller: Caller

    @property
    def has_contexts(self) -> bool: ...
    @property
    def send_queue_bytes(self) -> int: ...
    @property
    def idle_since(self) -> float | None: ...

    def drain(self, deadline_ms: int) -> None: ...
    def close(self, code: int, reason: str) -> None: ...
    def displace(self) -> None: ...


def _check_folders(settings: Settings) -> None:
    """Refuse a folder that cannot be used or made; defaults are made when they are needed."""
    folders = {"voices_folder": (settings.voices_folder, os.R_OK)}
    if settings.redis is not None:
        folders["jobs_storage"] = (settings.jobs_storage, os.R_OK | os.W_OK)
    for name, (given, needed) in folders.items():
        path = given.expanduser()
        try:
            if name in settings.model_fields_set:
                path.mkdir(parents=True, exist_ok=True)
            if path.exists():
                os.scandir(path).close()
                check_rights(path, needed | os.X_OK)
        except OSError as error:
            raise InvalidRequestError(f"{name}: {refused(path, error, 'folder')}") from None


class ServerState:
    """What the routes share; start it before the first request."""

    def __init__(self, settings: Settings) -> None:
        """Read the lexicon of the server, and build its parts.

        Raises:
            InvalidRequestError: the lexicon has a mistake, or the settings name keys, limits, a
                Redis or folders that cannot be used.
        """
        _check_folders(settings)
        self.settings = settings
        self.metrics = Metrics()
        self.access = self._make_access()
        """Keys and limits; None on a server without any, whose callers may do everything."""
        self.synthesizer = self._make_synthesizer()
        self.opener = ContextOpener(self.synthesizer, self.access, self.metrics)
        self.watchdog = Watchdog(self.synthesizer, settings.watchdog_s)
        self.sessions: set[_OpenSocket] = set()
        self.recent_texts = RecentTexts()
        self.held = Counter[str]()  # bytes that the requests of each caller hold; see `Hold`
        self.is_draining = False
        self.has_page = False  # whether there is a page for people at `/`
        self.audio_filter: AudioFilter | None = None  # changes all audio before clients receive it
        self.file_filter: FileFilter | None = None
        """Changes whole files before clients receive them."""
        self.new_voices: Callable[[], Mapping[str, bool]] = dict
        """Says which voices can be made now: `can_clone`, `can_design`; a missing one cannot."""
        self.listed_clones: Callable[[], Mapping[str, Mapping[str, str]]] = dict
        """Says what is listed of clones, by the names of their files: `voice_id`, `tag`."""
        self.find_clone: Callable[[str], str | None] = lambda voice_id: None
        """Finds the name of a clone's file by another id than its name."""
        self.on_start: list[Callable[[], Awaitable[None]]] = []  # called once the engine works
        self.before_drain: list[Callable[[], Awaitable[None]]] = []
        """Called when a drain begins: ends work that no client waits for."""
        self.on_withdrawal: list[Callable[[], Awaitable[None]]] = []
        """Called when consent to voices was withdrawn, to remove what is left of them."""
        self.on_close: list[Callable[[], Awaitable[None]]] = []  # called before the workers stop
        self._watching: asyncio.Task[None] | None = None

    def _make_access(self) -> "Access | None":
        settings = self.settings
        has_limits = settings.key_limits.given or settings.ip_limits.given
        if not (settings.needs_key or has_limits or settings.redis):
            return None
        for plugin in plugin_modules("access"):
            return plugin.access_of(settings, self.metrics, self._end_keys)
        raise InvalidRequestError(
            "expected none of keys, api_keys, key_limits, ip_limits and redis on a server without "
            "the plugin keys"
        )

    def _make_synthesizer(self) -> Synthesizer:
        settings, observe_abort = self.settings, self.metrics.engine_abort.observe
        specs = worker_specs(settings)
        make_aligners = functools.cache(functools.partial(_aligners_of, settings))
        if settings.aligner == "forced":
            make_aligners()  # refuses a missing model before engines load theirs
        return Synthesizer(
            {name: Supervisor(spec, observe_abort) for name, spec in specs.items()},
            Limits(
                max_text_chars=settings.max_text_chars,
                max_audio_s=settings.max_audio_s,
                max_lead_s=settings.max_lead_s,
            ),
            make_aligners,
            _lexicon_of(settings),
            _overflow_of(settings),
            self.clones_of,
            uses_native_words=settings.aligner != "off",
        )

    async def start(self) -> None:
        """Start the workers, and speak one word to check them."""
        import voiceagent_tts.text.reader  # noqa: F401 - now, so that the first context need not

        await run_in_threadpool(int)  # loads the threads of AnyIO, which the first answers need
        if self.access is not None:
            await self.access.start()
        audit(
            "server_started",
            version=__version__,
            keys=[] if self.access is None else self.access.key_ids,
            key_limits=self.settings.key_limits.given,
            ip_limits=self.settings.ip_limits.given,
        )
        await self.synthesizer.start()
        self.metrics.watch(self.synthesizer)
        self.metrics.sockets_open.set_function(lambda: len(self.sessions))
        self.metrics.send_queue.set_function(
            lambda: sum(session.send_queue_bytes for session in self.sessions)
        )
        self.metrics.is_ready.set_function(lambda: self.is_ready)
        await self.watchdog.probe()
        self._watching = asyncio.create_task(self.watchdog.run())
        for start in self.on_start:
            await start()

    @property
    def slots_free(self) -> int:
        """Rows that new contexts can have; 0 where none can be opened."""
        return self.synthesizer.rows - self.synthesizer.rows_used if self.is_ready else 0

    def slots_header(self, request: AsgiScope) -> dict[str, str]:
        """The header of `/health/ready` and of handshakes that tells a balancer the free rows."""
        if not self.sees_callers(request):
            return {}
        return {"X-TTS-Slots-Free": str(self.slots_free)}

    def sees_callers(self, request: AsgiScope) -> bool:
        """Whether a request may learn what all callers do: an admin's, or any without keys."""
        return self.access is None or self.access.sees_callers(request)

    @property
    def is_ready(self) -> bool:
        """Whether new contexts can be opened: the engine works and the server does not drain."""
        return self.watchdog.is_healthy and not self.is_draining

    def is_admin(self, key_id: str | None) -> bool:
        """Whether a caller may see and do everything, as on a server without keys."""
        return key_id is None or (self.access is not None and self.access.is_admin(key_id))

    @cached_property
    def clones(self) -> "VoiceFolder":
        """The cloned voices; loaded where an engine speaks clones, or a plugin asks."""
        from voiceagent_tts.clones import VoiceFolder

        return VoiceFolder(self.settings.clones_folder)

    def clones_of(self, key_id: str | None) -> "SeenClones":
        """The clones that a key may know of; None on a server without keys."""
        from voiceagent_tts.clones import SeenClones

        if key_id is None:
            return SeenClones(self.clones, of_id=self.find_clone)
        assert self.access is not None, "no other server has keys"
        is_seen = self.access.clone_filter(key_id)
        return SeenClones(self.clones, key_id, is_seen, self.find_clone)

    @property
    def models(self) -> tuple[str, ...]:
        """The models of the workers."""
        workers = self.synthesizer.supervisors.values()
        return tuple({each.capabilities.model: None for each in workers})

    def make_room(self, caller: Caller) -> None:
        """Make room for one more socket of a caller.

        If all sockets are in use, the caller with the most sockets loses its longest idle one to a
        caller with fewer.

        Raises:
            OverloadedError: there is no room.
        """
        if len(self.sessions) < self.settings.max_sockets:
            return
        counts = Counter(session.caller.owner for session in self.sessions)
        most = max(counts.values())
        idle = [
            (session.idle_since, id(session), session)
            for session in self.sessions
            if counts[session.caller.owner] == most and session.idle_since is not None
        ]
        if not idle or counts[caller.owner] + 1 >= most:
            raise OverloadedError(
                f"all {self.settings.max_sockets} sockets of this server are in use",
                retry_after_ms=1000,
            )
        _, _, session = min(idle)
        self.sessions.discard(session)
        session.displace()

    def _end_keys(self, errors: Mapping[str, UnauthorizedError]) -> None:
        """End what is spoken for keys that may not speak any more."""
        for session in list(self.sessions):
            if session.caller.key_id in errors:
                session.close(1008, "the key was revoked, or may not speak any more")
        for key_id, error in errors.items():
            self.synthesizer.fail_contexts(error, key_id)

    async def drain(self, drain_s: float, is_hurried: Callable[[], bool] = lambda: False) -> None:
        """Refuse new contexts, let open ones finish, then end the others.

        Sockets are closed with 1001, and the contexts of HTTP requests fail with `draining`.
        Returns when every socket has sent its last message and its close, or when a client has not
        read for 2 s after the close.
        """
        self.is_draining = True
        for stop in self.before_drain:
            await stop()
        deadline = time.monotonic() + drain_s
        for session in list(self.sessions):
            session.drain(round(drain_s * 1000))
        while self._has_contexts() and time.monotonic() < deadline and not is_hurried():
            await asyncio.sleep(_DRAIN_INTERVAL_S)
        for session in list(self.sessions):
            session.close(1001, "the server has drained")
        deadline = time.monotonic() + CLOSE_GRACE_S
        while self.sessions and time.monotonic() < deadline:
            await asyncio.sleep(_DRAIN_INTERVAL_S)
        self.synthesizer.fail_contexts(draining_error())

    def _has_contexts(self) -> bool:
        # A context may have ended in the synthesizer while its last message waits for a socket.
        in_sockets = any(session.has_contexts for session in self.sessions)
        return in_sockets or self.synthesizer.contexts_active > 0

    async def close(self) -> None:
        """Stop the workers and what plugins have started; idempotent. A failure stops no other."""
        async with contextlib.AsyncExitStack() as stack:  # the last one is closed first
            if self.access is not None:
                stack.push_async_callback(self.access.close)
            stack.push_async_callback(self.opener.close)
            stack.push_async_callback(self.synthesizer.close)
            if self._watching is not None:
                stack.push_async_callback(asyncio.wait, {self._watching})
                stack.callback(self._watching.cancel)
            for close in reversed(self.on_close):
                stack.push_async_callback(close)


def worker_specs(settings: Settings) -> dict[str, WorkerSpec]:
    """The engine workers by name; the first one has the default voice."""
    # The command line replaces None by the best engine of the machine.
    return kind_of(settings.engine or "espeak").worker_specs(settings)


def _overflow_of(settings: Settings) -> Supervisor | None:
    """The worker for contexts that the engine has no row for; None without one."""
    if not settings.overflow:
        return None
    (spec,) = kind_of("openai").worker_specs(settings).values()
    return Supervisor(spec)


def _aligners_of(settings: Settings) -> "Aligners":
    from voiceagent_tts.word_times.processes import aligners_of  # here: few engines need them

    return aligners_of(settings)


def _lexicon_of(settings: Settings) -> "Entries | None":
    if settings.lexicon is None:
        return None
    from voiceagent_tts.lexicon import read_lexicon

    return read_lexicon(settings.lexicon.expanduser())


def draining_error() -> OverloadedError:
    """The error with which a server that is shutting down refuses a request."""
    return OverloadedError("the server is shutting down", code=ErrorCode.DRAINING)


@dataclass(frozen=True, slots=True)
class ErrorForm:
    """Form of the errors on some routes."""

    has_path: Callable[[str], bool]  # whether a path is one of these routes
    body: Callable[[VoiceAgentError], dict[str, Any]]  # in JSON


@dataclass(frozen=True, slots=True)
class ServerHooks:
    """What a plugin's module `server` adds to; background work is added to `state`.

    Attributes:
        app: takes routes, and `websocket.add_socket` takes sockets.
        state: what all routes share; its attributes are hooks, as are `opener.on_request`,
            `opener.observers`, `synthesizer.before_open`, `synthesizer.proxy` and
            `synthesizer.find_lexicon`.
        open_paths: paths that need no key; one that ends with `/*` stands for all below it.
        upload_bytes: the longest body of a path that receives files.
        error_forms: how errors look on some routes; the first that has a path, else OpenAI's.
    """

    app: FastAPI
    state: ServerState
    open_paths: list[str]
    upload_bytes: dict[str, int]
    error_forms: list[ErrorForm]

    def is_open(self, path: str) -> bool:
        """Whether a path needs no key."""
        return any(
            path == each or (each.endswith("/*") and path.startswith(each[:-1]))
            for each in self.open_paths
        )

    def form_of(self, path: str) -> ErrorForm | None:
        """Return the form of errors on a path; None for OpenAI's."""
        return next((form for form in self.error_forms if form.has_path(path)), None)
