"""`voices` and `models` for Pocket TTS."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from testbed.command_line import CommandHere
from testbed.pocket import SMALL_MODEL, PocketHome
from voiceagent_tts.clones import VoiceFolder

SOUND = Path(__file__).parents[2] / "reference" / "reference.wav"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hub cache with the small model."""
    folder = tmp_path_factory.mktemp("pocket")
    PocketHome(folder).store()
    return folder


@pytest.fixture
def run(
    command_here: CommandHere, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> CommandHere:
    """Run a command with that cache, the small model and an empty folder of voices."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(home / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("VOICEAGENT_TTS_ENGINE", "pocket")
    monkeypatch.setenv("VOICEAGENT_TTS_MODELS", SMALL_MODEL)
    monkeypatch.setenv("VOICEAGENT_TTS_VOICES_FOLDER", str(tmp_path / "voices"))
    return command_here


def test_a_voice_is_added_exported_and_removed(run: CommandHere, tmp_path: Path) -> None:
    """The state has a folder of its own, beside the voices of Qwen3-TTS."""
    clones = VoiceFolder(tmp_path / "voices" / "pocket")
    added = run("voices", "add", "Ann", str(SOUND), "--consent", "Ann")
    assert (added.status, added.output) == (0, ""), added.errors
    assert f"saved the voice ann (for {SMALL_MODEL})" in added.errors
    assert clones.names() == ["ann"] and not list((tmp_path / "voices").glob("*.safetensors"))
    assert run("voices", "export", "ann", "a.safetensors").status == 0
    assert run("voices", "add", "bo", "a.safetensors", "--consent", "Bo").status == 0
    assert clones.read("bo") == clones.read("ann")
    assert run("voices", "remove", "ann").status == 0
    assert clones.names() == ["bo"]


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("alba", str(SOUND)), "'alba' is a built-in voice"),
        (("ann", "noise.safetensors"), "expected a voice file of Pocket TTS"),
        (("ann", "none.wav"), "none.wav"),
        (("ann", "short.wav"), "0.5 s"),
    ],
)
def test_what_cannot_be_a_voice_is_refused(
    run: CommandHere, tmp_path: Path, argv: tuple[str, ...], expected: str
) -> None:
    """One line says why, and nothing is stored."""
    (tmp_path / "noise.safetensors").write_bytes(b"noise")
    soundfile.write(tmp_path / "short.wav", np.zeros(100, np.float32), 24_000)
    refused = run("voices", "add", "--consent", "Ann", *argv)
    assert refused.status == 1 and expected in refused.errors.replace("\n", " ")
    assert not (tmp_path / "voices").exists()


def test_models_are_listed_and_fetched(run: CommandHere) -> None:
    """The languages are listed; a stored model needs no network, another one does."""
    listed = run("models", "list")
    lines = [line for line in listed.output.splitlines() if "Pocket TTS" in line]
    assert len(lines) == 7 and all(line.endswith("not on this machine") for line in lines)
    assert run("models", "download", SMALL_MODEL).status == 0
    missing = run("models", "download", "french")
    assert missing.status == 1 and "Pocket TTS french: not on this machine" in missing.errors
    assert "copy the folder HF_HOME" in missing.errors.replace("\n", " ")
