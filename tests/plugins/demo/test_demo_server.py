"""The server that a demo starts."""

from pathlib import Path

import pytest

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
