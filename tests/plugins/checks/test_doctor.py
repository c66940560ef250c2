"""`voiceagent-tts doctor`: findings about this machine, and a remedy for each problem."""

import re
import socket
import tomllib
from pathlib import Path
from typing import Literal

import pytest

from testbed.base_install import make_base_install, run_in_base_install
from testbed.command_line import Command, CommandHere
from testbed.missing import import_portaudio
from testbed.papers import ROOT
from testbed.parity_reference import REFERENCE
from testbed.server_process import ServerProcess
from voiceagent_tts.cli import models
from voiceagent_tts.cli.playback import output_device
from voiceagent_tts.config import Settings
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.checks.doctor import _word_times

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def has_line(output: str, beginning: str) -> bool:
    """Whether a line begins with a pattern."""
    return re.search(f"^{beginning}", output, re.MULTILINE) is not None


async def test_a_machine_that_can_speak_is_told_so(command: Command) -> None:
    """A machine that can speak: status 0, one line per finding; the embedded voice has spoken."""
    outcome = await command("doctor")
    assert outcome.status == 0, outcome.output
    assert has_line(outcome.output, r"ok +Python +3\.\d+")
    assert has_line(outcome.output, r"ok +extra server +.*\bfastapi \d")
    assert has_line(outcome.output, r"ok +embedded voice +\d\.\d s of speech in \d+ ms$")
    assert has_line(
        outcome.output, r"ok +word times +\w+'s own; for engines without: online aligner$"
    )
    for what in ("loudspeaker", "GPU", "model files", "port 8765"):
        assert has_line(outcome.output, rf"(ok|note) +{what} ")
    assert outcome.output.endswith("This machine can speak.\n")


def test_a_machine_without_the_extras_is_told_what_to_install(tmp_path: Path) -> None:
    """Missing extras: status 1, each is named, with a command that can be copied."""
    make_base_install(tmp_path)
    result = run_in_base_install(tmp_path, "-m", "voiceagent_tts", "doctor")
    assert result.returncode == 1, result.stderr
    assert has_line(result.stdout, r"bad +extra server +missing: .*\bfastapi\b")
    assert "-> pip install 'voiceagent-tts[server]'" in result.stdout
    assert has_line(result.stdout, r"bad +embedded voice +missing: ")
    assert has_line(result.stdout, r"note +voice +none yet")
    (agents,) = re.findall(r"^\w+ +extra agents +(.*)$", result.stdout, re.MULTILINE)
    assert agents.count("pipecat-ai") == 1
    assert "-> pip install 'voiceagent-tts[server,espeak]'" in result.stdout
    assert has_line(
        result.stdout, r"note +word times +espeak's own; for engines without: estimates$"
    )
    assert set(re.findall(r" extra (\w+)", result.stdout)) <= set(EXTRAS)
    assert result.stdout.endswith("This machine cannot speak yet.\n")
    assert result.stderr == ""


def test_the_settings_are_judged(
    command_here: CommandHere, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Port and engine are those with which a server would start, from the environment too."""
    monkeypatch.setenv("VOICEAGENT_TTS_ENGINE", "qwen3")
    monkeypatch.setenv("VOICEAGENT_TTS_MODELS", "Qwen/a")
    monkeypatch.setenv("VOICEAGENT_TTS_PORT", "18765")
    outcome = command_here("doctor")
    assert has_line(outcome.output, r"ok +settings +engine qwen3 Qwen/a, 127\.0\.0\.1:18765$")
    assert has_line(outcome.output, r"(ok|note) +port 18765 ")
    assert has_line(outcome.output, r"(ok|note) +CUDA +torch \S+ (for CUDA|is a CPU)")
    monkeypatch.setenv("VOICEAGENT_TTS_ENGINE", "qwen4")
    outcome = command_here("doctor")
    assert outcome.status == 1
    assert has_line(outcome.output, r"bad +settings +engine: ")


def test_a_misspelt_variable_is_told(
    command_here: CommandHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable that no setting has is named, with the setting that it resembles."""
    monkeypatch.setenv("VOICEAGENT_TTS_ENIGNE", "qwen3")
    outcome = command_here("doctor")
    assert outcome.status == 1
    assert "VOICEAGENT_TTS_ENIGNE is no setting" in outcome.output
    assert "did you mean VOICEAGENT_TTS_ENGINE?" in outcome.output


def test_a_machine_without_an_output_device_is_told_so() -> None:
    """What is missing has a name: the package, the library PortAudio, or a device."""
    sounddevice = import_portaudio()
    if any(device["max_output_channels"] for device in sounddevice.query_devices()):
        pytest.skip("this machine has an output device")
    with pytest.raises(InvalidRequestError, match=r"no output device \(PortAudio works\); connect"):
        output_device()


def test_a_port_that_is_taken_is_noted(
    command_here: CommandHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A port in use is a note: it limits a server, but the machine can speak."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        monkeypatch.setenv("VOICEAGENT_TTS_PORT", str(port))
        outcome = command_here("doctor")
    assert outcome.status == 0
    assert has_line(outcome.output, rf"note +port {port} +Address already in use$")
    assert "serve with --port 0" in outcome.output


def test_a_port_of_our_own_server_is_fine(
    command_here: CommandHere, served: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server of this project that runs there is no problem."""
    port = served.url.rpartition(":")[2]
    monkeypatch.setenv("VOICEAGENT_TTS_PORT", port)
    outcome = command_here("doctor")
    assert has_line(outcome.output, rf"ok +port {port} +a voiceagent-tts server is running$")


async def test_a_machine_without_a_place_for_sockets_is_told_so(
    command: Command, tmp_path: Path
) -> None:
    """A path of temporary files that is too long for the engine's socket is reported."""
    folder = tmp_path / "a".ljust(100, "a")
    folder.mkdir()
    outcome = await command("doctor", environment={"TMPDIR": str(folder)})
    assert (outcome.status, outcome.errors) == (1, "")
    assert has_line(outcome.output, r"bad +embedded voice .*set TMPDIR to")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("engine", ["espeak", "hibari", "kokoro"])
def test_an_engine_with_word_times_of_its_own_is_named(
    engine: Literal["espeak", "hibari", "kokoro"],
) -> None:
    """An aligner works for other engines only."""
    detail = _word_times(Settings(engine=engine)).detail
    assert detail.startswith(f"{engine}'s own; for engines without: online aligner")


@pytest.mark.parametrize("engine", ["qwen3", "pocket"])
def test_the_place_of_the_forced_aligner_is_said(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a downloaded aligner the finding says where it would run and why."""
    pytest.importorskip("torch")
    monkeypatch.setattr(models, "aligner_folder", lambda model: "/aligner")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    one = str(REFERENCE / "custom_voice-1b7")
    given = {"engine": engine, "models": (one,) if engine == "qwen3" else ()}
    finding = _word_times(Settings(**given))
    assert finding.detail == "online aligner and forced aligner on the CPU: there is no GPU"
    finding = _word_times(Settings(aligner_device="cpu", **given))
    assert finding.detail.endswith("forced aligner on the CPU: set by aligner_device")
    assert _word_times(Settings(aligner="online", **given)).detail == "online aligner"
    missing = _word_times(Settings(engine="qwen3", models=("no/model",)))
    assert missing.detail.endswith("forced aligner on the CPU: there is no GPU")
