"""The voice server of an agent: the one that runs, or one that the agent starts."""

from pathlib import Path

import pytest

from agents import voice_server
from testbed.user_sounds import speech
from voiceagent_tts.server.serve import RunningServer


async def test_the_agent_starts_a_server_if_there_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """If no server is configured and none is running, one runs while the agent needs it."""
    monkeypatch.delenv("VOICEAGENT_TTS_URL", raising=False)
    monkeypatch.setattr(voice_server, "DEFAULT_PORT", 9)
    log = tmp_path / "server.log"
    async with voice_server.voice_server(log) as url:
        assert await speech(url, "Hi.")
        port = int(url.split(":")[2].split("/")[0])
        assert await voice_server.is_listening("127.0.0.1", port)
    assert not await voice_server.is_listening("127.0.0.1", port)


async def test_a_running_server_is_used(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The agent uses the configured server, or else the one that runs on this machine."""
    log = tmp_path / "server.log"
    port = int(server.url.rsplit(":", 1)[1])
    monkeypatch.setattr(voice_server, "DEFAULT_PORT", port)
    monkeypatch.delenv("VOICEAGENT_TTS_URL", raising=False)
    async with voice_server.voice_server(log) as url:
        assert await speech(url, "Hi.")
    monkeypatch.setenv("VOICEAGENT_TTS_URL", "ws://elsewhere")
    async with voice_server.voice_server(log) as url:
        assert url == "ws://elsewhere"
