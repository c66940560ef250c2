"""The request log and the stored requests: what was asked for, and what became of it.

The request log has no text, only a keyed hash of it: equal texts can be found, and a short text
cannot be guessed without the secret. Requests with their text are stored only where a folder is
set for them.
"""

import hashlib
import hmac
import json
import os
import random
import secrets
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from voiceagent_tts.access.disk_log import DiskLog, LineFile
from voiceagent_tts.access.limiter import Caller
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.lexicon import as_json
from voiceagent_tts.settings.logs import LogSettings
from voiceagent_tts.synthesizer.context import Context
from voiceagent_tts.synthesizer.events import ContextReport
from voiceagent_tts.synthesizer.options import ContextOptions

_FAILED = ("error", "limit")
_MAX_NAME_CHARS = 64
_NAMES = f"{'[0-9]' * 8}T{'[0-9]' * 6}.*Z-*-*.json"
"""Files of stored requests: time, outcome, a random number."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a context comes from.

    Args:
        caller: the key and the address.
        path: the route.
        ids: ids of the request or the socket, and of the context, by name.
        traceparent: span of the caller, as W3C has it and as the caller has sent it; None without.
    """

    caller: Caller
    path: str
    ids: Mapping[str, str]
    traceparent: str | None = None


class ContextLog:
    """Writes one line for each context, and stores requests, if the settings ask for it.

    Args:
        settings: the places, the secret and the share of stored requests.
        on_failure: called with the name of a log for every write that fails; may run in a thread.
    """

    def __init__(self, settings: LogSettings, on_failure: Callable[[str], None]) -> None:
        secret = settings.hash_secret
        self._secret = secret.get_secret_value().encode() if secret else secrets.token_bytes(32)
        self._share = settings.sample_share
        self._lines = LineFile(settings.request_log) if settings.request_log else None
        self._samples = (
            _SampleFolder(settings.sample_folder.expanduser(), settings.sample_folder_mb * 1e6)
            if settings.sample_folder
            else None
        )
        self._line_disk = DiskLog("request_log", on_failure)
        self._sample_disk = DiskLog("sample_folder", on_failure)

    def ended(self, origin: Origin, context: Context, report: ContextReport) -> None:
        """Write a context that has ended."""
        if self._lines is None and self._samples is None:
            return
        line = {
            **_start(origin, report.reason, report.code),
            "voice": context.voice.name,
            "language": context.language,
            "chars": report.chars,
            "input_hmac": self._hash(context.text),
            "ttfa_s": _rounded(report.ttfa_s),
            "audio_s": _rounded(report.audio_samples / SAMPLE_RATE_HZ),
            "seconds": _rounded(report.gen_s),
            "underrun_s": _rounded(report.underrun_s),
            "cached_segments": report.cached_segments,
        }
        self._append(line)
        if self._samples is not None and self._is_stored(report):
            folder, request = self._samples, {**line, **_request(context)}
            self._sample_disk.submit(lambda: folder.store(request))

    def not_opened(
        self,
        origin: Origin,
        options: ContextOptions,
        outcome: Literal["refused", "cancelled"],
        code: ErrorCode | None = None,
    ) -> None:
        """Write a context that was refused, or whose client has cancelled it or left before."""
        if self._lines is not None:
            self._append(
                {
                    **_start(origin, outcome, code),
                    "voice": _shortened(options.voice),
                    "language": _shortened(options.language),
                }
            )

    def _append(self, line: Mapping[str, Any]) -> None:
        if (lines := self._lines) is not None:
            self._line_disk.submit(lambda: lines.append(json.dumps(line)))

    def _hash(self, text: str) -> str:
        return hmac.new(self._secret, text.encode(errors="replace"), hashlib.sha256).hexdigest()

    def _is_stored(self, report: ContextReport) -> bool:
        return report.reason in _FAILED or random.random() < self._share

    def close(self) -> None:
        """Write what waits."""
        self._line_disk.close()
        self._sample_disk.close()


def _start(origin: Origin, outcome: str, code: ErrorCode | None) -> dict[str, Any]:
    return {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "outcome": outcome,
        "code": code,
        "key_id": origin.caller.key_id,
        "path": origin.path,
        **origin.ids,
    }


def _request(context: Context) -> dict[str, Any]:
    """What is needed to send the request again."""
    speech = context.options.speech
    return {
        "text": context.text,
        "instruct": speech.instruct,
        "speed": speech.speed,
        "seed": speech.seed,
        "lexicon": as_json(context.options.lexicon),
        "markup": context.options.has_markup,
    }


class _SampleFolder:
    """A folder with one JSON file for each request; the oldest are deleted where it is full."""

    def __init__(self, folder: Path, max_bytes: float) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._files: deque[tuple[Path, int]] | None = None  # oldest first
        self._bytes = 0

    def store(self, request: Mapping[str, Any]) -> None:
        """Store one request, and delete the oldest ones beyond the size.

        Raises:
            OSError: the file cannot be written.
        """
        files = self._known_files()
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        path = self._folder / f"{stamp}-{request['outcome']}-{secrets.token_hex(4)}.json"
        data = json.dumps(request, indent=1).encode()
        self._make_room(files, len(data))
        self._write(path, data)
        files.append((path, len(data)))
        self._bytes += len(data)

    def _known_files(self) -> deque[tuple[Path, int]]:
        if self._files is None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = sorted(self._folder.glob(_NAMES))  # and no file of others, which would go
            self._files = deque((path, path.stat().st_size) for path in found)
            self._bytes = sum(size for _, size in self._files)
        return self._files

    def _make_room(self, files: deque[tuple[Path, int]], size: int) -> None:
        while files and self._bytes + size > self._max_bytes:
            oldest, its_size = files.popleft()
            oldest.unlink(missing_ok=True)
            self._bytes -= its_size

    def _write(self, path: Path, data: bytes) -> None:
        try:
            with open(path, "xb", opener=_private) as file:
                file.write(data)
        except OSError:
            path.unlink(missing_ok=True)  # what a full disk has left of it
            raise


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _shortened(name: str | None) -> str | None:
    """A name that a client has sent and that was not checked yet."""
    return None if name is None else name[:_MAX_NAME_CHARS]


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 4)
