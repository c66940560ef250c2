"""The server that a demo starts."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.waiting import PATIENCE_S
from voiceagent_tts.client import TTSClient
from voiceagent_tts.errors import EngineError
from voiceagent_tts.plugins.demo.demo_server import demo_server


async def test_settings_for_other_servers_do_not_apply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It speaks without a key, with the embedded voice, whatever is configured."""
    monkeypatch.setenv("VOICEAGENT_TTS_API_KEYS", "secret-of-another-server")
    settings = tmp_path / "voiceagent-tts.toml"
    settings.write_text('keys = "keys-of-another-server.json"\n')
    monkeypatch.setenv("VOICEAGENT_TTS_CONFIG", str(settings))
    monkeypatch.setenv("VOICEAGENT_TTS_ENGINE", "qwen3")
    monkeypatch.setenv("VOICEAGENT_TTS_PORT", "1")
    async with demo_server(tmp_path / "server.log") as url, TTSClient(url) as client:
        events = [event async for event in client.say("Hello.", language="en", max_lead_s=0)]
    assert events


async def test_a_server_that_does_not_start_names_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason stands there."""
    monkeypatch.setenv("VOICEAGENT_TTS_WORKERS", "none")
    with pytest.raises(EngineError, match="the server did not start; see .*server.log"):
        async with demo_server(tmp_path / "server.log"):
            pass
    assert "workers" in (tmp_path / "server.log").read_text()


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_ends_with_the_program_that_started_it(tmp_path: Path, by: signal.Signals) -> None:
    """However the program ends: its server would run, and keep its port, for ever."""
    log = str(tmp_path / "log")
    program = f"""
import asyncio, pathlib
from voiceagent_tts.plugins.demo.demo_server import server_process

SERVER = "import time; print('ready x', flush=True); time.sleep(600)"

async def main():
    async with server_process(("-c", SERVER), pathlib.Path({log!r}), {{}}) as server:
        print(server.pid, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        server = int(parent.stdout.readline())
        ended = os.pidfd_open(server)
        parent.send_signal(by)
        readable, _, _ = select.select([ended], [], [], PATIENCE_S)
        os.close(ended)
    assert readable, "the server still runs"
