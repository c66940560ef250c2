"""Runs the command line in an empty directory."""

import asyncio
from collections.abc import AsyncIterable
from pathlib import Path

import pytest

from testbed.command_line import Command, Outcome, finished, start


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """Run `voiceagent-tts *argv` in an empty directory.

    `typed` is written to its standard input piece by piece, as it comes; `environment` is added.
    """

    async def run(
        *argv: str,
        typed: AsyncIterable[bytes] | None = None,
        environment: dict[str, str] | None = None,
    ) -> Outcome:
        process = await start(*argv, folder=tmp_path, environment=environment)
        reading = asyncio.create_task(finished(process))
        assert process.stdin is not None
        if typed is not None:
            async for piece in typed:
                process.stdin.write(piece)
                await process.stdin.drain()
        process.stdin.close()
        return await reading

    return run
