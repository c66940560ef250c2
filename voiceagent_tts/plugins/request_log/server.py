"""The request log: each request and its outcome.

It contains a keyed hash of the text, not the text: equal texts can be found, and a short text
cannot be guessed without the secret.
"""

import asyncio
import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from prometheus_client import Counter

from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.plugins.request_log.disk_log import DiskLog, LineFile
from voiceagent_tts.server.admission import Origin
from voiceagent_tts.server.state import ServerHooks
from voiceagent_tts.synthesizer.context import Context
from voiceagent_tts.synthesizer.events import ContextReport
from voiceagent_tts.synthesizer.options import ContextOptions

_MAX_NAME_CHARS = 64


def add_to_server(hooks: ServerHooks) -> None:
    """Write the request log, if the settings ask for it; `/metrics` counts what it loses.

    Raises:
        InvalidRequestError: the file cannot be written.
    """
    state = hooks.state
    failures = Counter(
        "tts_log_failures",
        "Writes to a log on disk that failed.",
        ["log"],
        registry=state.metrics.registry,
    )
    if state.settings.request_log is not None:
        log = ContextLog(state.settings.request_log, lambda name: failures.labels(name).inc())
        state.opener.observers.append(log)


class ContextLog:
    """Writes one line for each context.

    Args:
        on_failure: called with the name of a log for every write that fails; may run in a thread.

    Raises:
        InvalidRequestError: the file cannot be written.
    """

    def __init__(self, path: Path, on_failure: Callable[[str], None]) -> None:
        self._secret = secrets.token_bytes(32)
        self._lines = LineFile(path)
        self._lines.check("request_log")
        self._disk = DiskLog("request_log", on_failure)

    def ended(self, origin: Origin, context: Context, report: ContextReport) -> None:
        """Write a context that has ended."""
        line = {
            **_start(origin, report.reason, report.code),
            "voice": context.voice.name,
            "language": context.request.language,
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
        self._append(
            {
                **_start(origin, outcome, code),
                "voice": _shortened(options.voice),
                "language": _shortened(options.language),
            }
        )

    def _append(self, line: Mapping[str, Any]) -> None:
        self._disk.submit(lambda: self._lines.append(json.dumps(line)))

    def _hash(self, text: str) -> str:
        return hmac.new(self._secret, text.encode(errors="replace"), hashlib.sha256).hexdigest()

    async def close(self) -> None:
        """Write the lines that wait."""
        await asyncio.to_thread(self._disk.close)  # a disk may take its time


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
