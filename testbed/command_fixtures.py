"""Runs the command line in an empty directory."""

import asyncio
import io
import os
import sys
from collections.abc import AsyncIterable
from pathlib import Path

import pytest
import structlog

from testbed import file_faults
from testbed.command_line import EMBEDDED, Command, CommandHere, FullDisk, Outcome, finished, start
from voiceagent_tts.cli import main


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """Run `voiceagent-tts *argv` in an empty directory.

    `typed` is written to its standard input piece by piece; `environment` adds variables.
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


@pytest.fixture
def command_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandHere:
    """Run `voiceagent-tts *argv` in an empty directory, in this process, without any input.

    This saves starting a process; each command also has tests that start one. Variables that a
    test sets for the command are set after this fixture.
    """
    for name in os.environ:
        if name.startswith("VOICEAGENT_TTS_"):
            monkeypatch.delenv(name)
    for name, value in EMBEDDED.items():
        monkeypatch.setenv(name, value)

    def run(*argv: str) -> Outcome:
        with monkeypatch.context() as patch:
            patch.chdir(tmp_path)
            patch.setattr(sys, "argv", ["voiceagent-tts", *argv])
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
            logging_before = structlog.get_config()
            try:
                with pytest.raises(SystemExit) as ended:
                    main()
            finally:  # a command logs to its standard error, which ends with the test
                structlog.configure(**logging_before)
        written = capsys.readouterr()
        return Outcome(int(ended.value.code or 0), written.out, written.err)

    return run


@pytest.fixture
def full_disk() -> FullDisk:
    """Within the block, no file of this process, and of those it starts, can grow beyond a size."""
    return file_faults.full_disk
