"""The core works without its plugins."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import soundfile
import torch

import voiceagent_tts
from testbed.linked_models import link_with_short_runs
from testbed.watermarks import TEST_KEY
from voiceagent_tts.clones import VoiceFolder
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.model.prompt import Cloned
from voiceagent_tts.plugins.clones.stored_voices import add_voice
from voiceagent_tts.plugins.clones.voice_records import VoiceRecord, VoiceRecords
from voiceagent_tts.plugins.provenance.detector import FILE_LIMITS, detect
from voiceagent_tts.plugins.recordings.file_reader import read_audio

_PACKAGE = Path(voiceagent_tts.__file__).parent
BASE = Path(__file__).parent / "reference" / "base-0b6"
TEXT = "The quick brown fox jumps over the lazy dog, and the dog sleeps on in the warm sun. " * 2
ASK = """
import asyncio, httpx, json, sys
from voiceagent_tts.config import Settings
from voiceagent_tts.server.serve import running

async def ask():
    async with running(Settings(port=0)) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
            answers = {asked: await http.request(*asked.split()) for asked in sys.argv[1:]}
        paths = server.uvicorn_server.config.app.app.openapi()["paths"]
    return {
        "statuses": {asked: answer.status_code for asked, answer in answers.items()},
        "voices": answers["GET /v1/audio/voices"].json(),
        "paths": list(paths),
        "plugins": [name for name in sys.modules if name.startswith("voiceagent_tts.plugins")],
    }

print(json.dumps(asyncio.run(ask())))
"""


@pytest.fixture
def core(tmp_path: Path) -> Path:
    """A folder with a copy of the package that has no `plugins` folder."""
    copy = tmp_path / "core" / "voiceagent_tts"
    copy.mkdir(parents=True)
    for part in _PACKAGE.iterdir():
        if part.name != "plugins":
            (copy / part.name).symlink_to(part)
    return copy.parent


def run(core: Path, *arguments: str, **environment: str) -> str:
    settings = {"VOICEAGENT_TTS_ENGINE": "espeak", "PYTHONPATH": str(core), **environment}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=core,
        env=os.environ | settings,
        check=True,
        timeout=120,
        capture_output=True,
        text=True,
    ).stdout


def test_the_core_speaks_without_the_folder_of_plugins(core: Path, tmp_path: Path) -> None:
    """`say` starts a server of the copy, and gets its audio.

    Nothing marks it, as the watermark is a plugin's.
    """
    audio = tmp_path / "hello.wav"
    run(core, "-m", "voiceagent_tts", "say", TEXT, "-o", str(audio))
    samples = read_audio(audio.read_bytes(), FILE_LIMITS)
    assert len(samples) > 5 * SAMPLE_RATE_HZ
    assert not detect(samples, [TEST_KEY]).is_marked


def test_the_core_lists_voices_and_has_no_routes_of_plugins(core: Path) -> None:
    """The list is there, which says that nothing is cloned; page and clones are unknown."""
    voices = "/v1/audio/voices"
    statuses = {
        f"GET {voices}": 200,
        "GET /": 404,
        f"POST {voices}": 405,
        f"POST {voices}/design": 404,
        f"GET {voices}/anna": 404,
        f"DELETE {voices}/anna": 404,
        "GET /v1/audio/voice_consents": 404,
        "POST /v1/audio/voice_consents": 404,
        "POST /v1/audio/speech": 404,
        "POST /v1/audio/speech/batch": 404,
        "POST /v1/audio/jobs": 404,
        "GET /openapi.json": 404,
    }
    answer: dict[str, Any] = json.loads(run(core, "-c", ASK, *statuses).splitlines()[-1])
    assert answer["plugins"] == []
    assert answer["statuses"] == statuses
    assert answer["voices"]["voices"][0]["id"] == "default"
    assert (answer["voices"]["can_clone"], answer["voices"]["can_design"]) == (False, False)
    assert [path for path in answer["paths"] if path.startswith("/v1/audio/")] == [voices]


def test_the_core_invites_no_browser(core: Path) -> None:
    """Without a page, `serve` names the address that clients connect to."""
    argv = [sys.executable, "-m", "voiceagent_tts", "serve", "--port", "0"]
    settings = {"VOICEAGENT_TTS_ENGINE": "espeak", "PYTHONPATH": str(core)}
    with subprocess.Popen(
        argv,
        cwd=core,
        env=os.environ | settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout is not None
        address = server.stdout.readline().removeprefix("ready ").strip()
        server.terminate()
        _, errors = server.communicate(timeout=60)
    assert f"Clients connect to {address}.\n" in errors and "browser" not in errors


def test_the_core_serves_nothing_in_the_clear_that_was_to_be_encrypted(core: Path) -> None:
    """TLS is a plugin's; without it, a server that is to have a certificate does not start."""
    with pytest.raises(subprocess.CalledProcessError):
        run(core, "-m", "voiceagent_tts", "serve", "--port", "0", "--ssl-self-signed")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("KEYS", "keys.json"),
        ("API_KEYS", "a-key-of-enough-characters"),
        ("IP_LIMITS", "contexts=1"),
        ("REDIS", "redis://127.0.0.1:6379/0"),
    ],
)
def test_the_core_serves_nobody_whom_it_was_to_ask_for_a_key(
    core: Path, setting: str, value: str
) -> None:
    """Keys and limits are a plugin's; without it, a server that is to have some does not start."""
    with pytest.raises(subprocess.CalledProcessError) as refused:
        run(
            core, "-m", "voiceagent_tts", "serve", "--port", "0",
            **{f"VOICEAGENT_TTS_{setting}": value},
        )  # fmt: skip
    (line,) = refused.value.stderr.splitlines()
    assert "redis on a server without the plugin keys" in line


def test_an_engine_whose_plugin_is_absent_is_refused_in_one_line(core: Path) -> None:
    """The settings know its name; the line names the engines that are there."""
    with pytest.raises(subprocess.CalledProcessError) as refused:
        run(core, "-m", "voiceagent_tts", "serve", "--port", "0", "--engine", "pocket")
    expected = "engine pocket: expected qwen3, hibari, kokoro, espeak; its plugin is not in"
    assert expected in refused.value.stderr


@pytest.mark.thorough
def test_the_core_speaks_with_a_stored_voice(core: Path, tmp_path: Path) -> None:
    """A voice of the folder is spoken by its name; whoever made it."""
    model, folder = tmp_path / BASE.name, VoiceFolder(tmp_path / "voices")
    link_with_short_runs(BASE, model, frames=24)
    voice = Cloned(torch.zeros(64)).to_bytes()
    add_voice(VoiceRecords(folder), VoiceRecord(name="anna"), voice)
    audio = tmp_path / "hello.wav"
    run(
        core, "-m", "voiceagent_tts", "say", "Hello.", "--voice", "anna", "-o", str(audio),
        VOICEAGENT_TTS_ENGINE="qwen3", VOICEAGENT_TTS_MODELS=str(model),
        VOICEAGENT_TTS_VOICES_FOLDER=str(folder.path), VOICEAGENT_TTS_ALIGNER="off",
    )  # fmt: skip
    samples, _ = soundfile.read(audio)
    assert samples.any()
