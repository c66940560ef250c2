"""`cache warm`, `cache stats` and `cache clear` on a running server."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from testbed.servers import StartServer
from voiceagent_tts.cli import main


async def run(*arguments: str) -> None:
    """Run a command while the server answers in this event loop."""
    with capture_logs():  # the server's, which would be on standard output, too
        await asyncio.to_thread(_main, [*arguments])


def _main(arguments: list[str]) -> None:
    try:
        main(arguments)
    except SystemExit as end:
        if end.code:
            raise RuntimeError(end.code) from None


async def test_a_file_of_phrases_is_warmed_shown_and_cleared(
    start_server: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Comments and empty lines are left out."""
    server = await start_server(cache_mb=20)
    phrases = tmp_path / "phrases.txt"
    phrases.write_text("# the script\n\nOne moment, please.\nHello. How are you?\n")
    await run("cache", "warm", str(phrases), "--language", "en", "--url", server.url)
    stored = capsys.readouterr().out
    assert stored.startswith("2 phrases: stored ")
    await run("cache", "stats", "--url", server.url)
    stats = dict(line.split(": ") for line in capsys.readouterr().out.splitlines())
    assert int(stats["phrases"]) > 4
    assert f"stored {stats['stored']} segments" in stored
    await run("cache", "clear", "--url", server.url)
    assert capsys.readouterr().out == f"dropped {stats['phrases']} phrases\n"


async def test_what_goes_wrong_is_one_line(
    start_server: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], free_port: int
) -> None:
    """A server without a cache, an unknown voice, no server, no file."""
    server = await start_server(cache_mb=20, api_keys=("key",))
    phrases = tmp_path / "phrases.txt"
    phrases.write_text("Hello.\n")
    for arguments, part in (
        (("stats", "--url", server.url), "expected an API key"),
        (("warm", str(phrases), "--voice", "x", "--api-key", "key", "--url", server.url), "'x'"),
        (("stats", "--url", f"ws://127.0.0.1:{free_port}"), "no server at 127.0.0.1:"),
        (("warm", str(tmp_path / "none.txt"), "--url", server.url), "No such file"),
    ):
        with pytest.raises(RuntimeError):
            await run("cache", *arguments)
        error = capsys.readouterr().err
        assert part in error
        assert error.count("\n") == 1
