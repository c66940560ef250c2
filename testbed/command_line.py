"""Run the command line as a user does: a process with two outputs and an exit status."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from testbed.waiting import until
from testbed.watermarks import WATERMARK_KEY_FILE
from voiceagent_tts.offspring import Following
from voiceagent_tts.server.serve import RunningServer

EMBEDDED = {
    "VOICEAGENT_TTS_ENGINE": "espeak",
    "VOICEAGENT_TTS_WATERMARK_KEY_FILE": str(WATERMARK_KEY_FILE),
}
"""A better voice that is on this machine would be taken otherwise, and a key made in its home."""


@dataclass(frozen=True, slots=True)
class Outcome:
    status: int
    output: str
    errors: str


Command = Callable[..., Awaitable[Outcome]]
CommandHere = Callable[..., Outcome]
FullDisk = Callable[..., AbstractContextManager[None]]


async def start(
    *argv: str,
    folder: Path,
    environment: dict[str, str] | None = None,
    stdin: IO[bytes] | int = asyncio.subprocess.PIPE,
    module: str = "voiceagent_tts",
) -> asyncio.subprocess.Process:
    """Start `voiceagent-tts *argv`; the caller reads its outputs and waits for it.

    Another `module` may take its place.
    """
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("VOICEAGENT_TTS_")}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *argv,
        cwd=folder,
        env={**inherited, **EMBEDDED, **(environment or {})},
        stdin=stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        preexec_fn=Following(os.getpid()),
    )  # fmt: skip


async def finished(process: asyncio.subprocess.Process) -> Outcome:
    assert process.stdout is not None and process.stderr is not None
    output, errors = await asyncio.gather(process.stdout.read(), process.stderr.read())
    return Outcome(await process.wait(), output.decode(), errors.decode())


async def check_ctrl_c(process: asyncio.subprocess.Process, server: RunningServer) -> None:
    """Ctrl-C ends a command that has connected to `server`, without a traceback."""
    await until(lambda: bool(server.state.sessions), "the command has connected")
    process.send_signal(signal.SIGINT)
    outcome = await finished(process)
    assert outcome.status == 130
    assert "Traceback" not in outcome.errors
