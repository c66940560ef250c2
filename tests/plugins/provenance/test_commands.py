"""`voiceagent-tts detect`, and the manifests of the files of `say` and `batch`."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from testbed.c2pa_certificates import certificate_files, manifest_of
from testbed.command_line import CommandHere
from testbed.server_process import ServerProcess
from testbed.watermarks import TEST_KEY, speech_pcm


@pytest.fixture
def signing_command(
    command_here: CommandHere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> CommandHere:
    """Run a command with certificates in its settings."""
    for setting, path in certificate_files(tmp_path).items():
        monkeypatch.setenv(f"VOICEAGENT_TTS_{setting.upper()}", str(path))
    return command_here


def signed_model(file: bytes, content_type: str) -> str:
    """The model that a file's manifest names; fails if the signature is wrong."""
    return manifest_of(file, content_type)["org.voiceagent-tts.provenance"]["model"]


def test_what_say_writes_is_found(
    served: ServerProcess, command_here: CommandHere, tmp_path: Path
) -> None:
    """A file of `say` is marked, and `detect` exits with 0; other speech exits with 1."""
    text = "Good morning. The library opens at nine, and the reading room at ten."
    said = command_here("say", text, "-o", "a.mp3", "--url", served.websocket_url)
    assert said.status == 0
    outcome = command_here("detect", "a.mp3")
    assert outcome.status == 0
    assert json.loads(outcome.output)["key_id"] == TEST_KEY.id
    soundfile.write(tmp_path / "plain.wav", np.frombuffer(speech_pcm(), "<i2"), 24_000)
    outcome = command_here("detect", "plain.wav")
    assert outcome.status == 1 and json.loads(outcome.output)["is_marked"] is False


def test_say_signs_its_files(
    served: ServerProcess, signing_command: CommandHere, tmp_path: Path
) -> None:
    """With certificates in the settings, a file says how it was made."""
    url = served.websocket_url
    assert signing_command("say", "Hello.", "-o", "a.flac", "--url", url).status == 0
    signed = (tmp_path / "a.flac").read_bytes()
    assert signed_model(signed, "audio/flac").startswith("espeak-ng")


def test_batch_signs_its_files(
    served: ServerProcess, signing_command: CommandHere, tmp_path: Path
) -> None:
    """Every file of a folder is signed."""
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "one.txt").write_text("Hello there.")
    options = ("--format", "mp3", "--url", served.websocket_url)
    assert signing_command("batch", "texts", "-o", "out", *options).status == 0
    signed_model((tmp_path / "out" / "one.mp3").read_bytes(), "audio/mpeg")


def test_what_is_no_audio_is_refused(command_here: CommandHere, tmp_path: Path) -> None:
    """A file that is no audio, or no file at all, is an error in one line."""
    (tmp_path / "a.wav").write_bytes(b"no audio")
    for name in ("a.wav", "missing.wav"):
        outcome = command_here("detect", name)
        assert outcome.status == 1 and outcome.errors.count("\n") == 1
