"""The request log: each request and its outcome.

It contains a keyed hash of the text, not the text: equal texts can be found, and a short text
cannot be guessed without the secret.
"""

import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from voiceagent_tts.access.keys import Caller
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.settings.network import LogSettings
from voiceagent_tts.synthesizer.context import Context
from voiceagent_tts.synthesizer.events import ContextReport
from voiceagent_tts.synthesizer.options import ContextOptions

if TYPE_CHECKING:
    from voiceagent_tts.access.disk_log import DiskLog, LineFile

_MAX_NAME_CHARS = 64


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a context comes from.

    Args:
        caller: the key and the address.
        path: the route.
        ids: ids of the request or the socket, and of the context, by name.
        traceparent: the caller's W3C `traceparent`, as received; None without one.
    """

    caller: Caller
    path: str
    ids: Mapping[str, str]
    traceparent: str | None = None


class ContextLog:
    """Writes one line for each context, if the settings ask for it.

    Args:
        settings: the file.
        on_failure: called with the name of a log for every write that fails; may run in a thread.

    Raises:
        InvalidRequestError: the file cannot be written.
    """

    def __init__(self, settings: LogSettings, on_failure: Callable[[str], None]) -> None:
        self._secret = secrets.token_bytes(32)
        self._file = _open(settings.request_log, on_failure) if settings.request_log else None

    def ended(self, origin: Origin, context: Context, report: ContextReport) -> None:
        """Write a context that has ended."""
        if self._file is None:
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

    def not_opened(
        self,
        origin: Origin,
        options: ContextOptions,
        outcome: Literal["refused", "cancelled"],
        code: ErrorCode | None = None,
    ) -> None:
        """Write a context that was refused, or whose client has cancelled it or left before."""
        if self._file is not None:
            self._append(
                {
                    **_start(origin, outcome, code),
                    "voice": _shortened(options.voice),
                    "language": _shortened(options.language),
                }
            )

    def _append(self, line: Mapping[str, Any]) -> None:
        if (file := self._file) is not None:
            disk, lines = file
            disk.submit(lambda: lines.append(json.dumps(line)))

    def _hash(self, text: str) -> str:
        return hmac.new(self._secret, text.encode(errors="replace"), hashlib.sha256).hexdigest()

    def close(self) -> None:
        """Flush waiting lines."""
        if self._file is not None:
            self._file[0].close()


def _open(path: Path, on_failure: Callable[[str], None]) -> "tuple[DiskLog, LineFile]":
    """The log's file and its background writer."""
    from voiceagent_tts.access.disk_log import DiskLog, LineFile

    lines = LineFile(path)
    lines.check("request_log")
    return DiskLog("request_log", on_failure), lines


def _start(origin: Origin, outcome: str, code: ErrorCode | None) -> dict[str, Any]:
    return {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "outcome": outcome,
        "code": code,
        "key_id": origin.caller.key_id,
        "path": origin.path,
        **origin.ids,
    }


def _shortened(name: str | None) -> str | None:
    """A name that a client has sent and that was not checked yet."""
    return None if name is None else name[:_MAX_NAME_CHARS]


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 4)
