"""The command line as a person meets it: a process, its two outputs, its status."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended."""

    status: int
    output: str
    errors: str


Command = Callable[..., Awaitable[Outcome]]
CommandHere = Callable[..., Outcome]


async def start(
    *argv: str,
    folder: Path,
    environment: dict[str, str] | None = None,
    stdin: IO[bytes] | int = asyncio.subprocess.PIPE,
) -> asyncio.subprocess.Process:
    """Start `voiceagent-tts *argv`; its owner reads it and waits for it."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("VOICEAGENT_TTS_")}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "voiceagent_tts", *argv,
        cwd=folder,
        env={**inherited, **(environment or {})},
        stdin=stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def finished(process: asyncio.subprocess.Process) -> Outcome:
    """Read all that a process says, until it has ended."""
    assert process.stdout is not None and process.stderr is not None
    output, errors = await asyncio.gather(process.stdout.read(), process.stderr.read())
    return Outcome(await process.wait(), output.decode(), errors.decode())
