"""`local_mic`: a conversation in files, and a sentence for each mistake."""

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from typer.testing import CliRunner

from agents import local_mic, stand_ins
from testbed import user_sounds
from testbed.server_process import ServerProcess

ROOT = Path(__file__).parents[2]
QUESTION = "What can you tell me about your week?"


def run_in_files(*options: str) -> tuple[int, str]:
    """Run the program in this process; returns its exit status and everything that it printed."""
    app = local_mic.typer.Typer()
    app.command()(local_mic.main)
    result = CliRunner().invoke(app, list(options), env={"COLUMNS": "200"})
    return result.exit_code, result.output


def test_files_in_place_of_devices(
    served: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user of the file interrupts, and the agent falls silent soon after.

    The end of the output has the latency by stage, and one JSON object.
    """
    monkeypatch.setenv("VOICEAGENT_TTS_URL", served.websocket_url)
    monkeypatch.setattr(stand_ins, "LINES", (stand_ins.LINES[0], "Fine."))
    question = asyncio.run(user_sounds.speech(served.websocket_url, QUESTION))
    second = 2 * user_sounds.RATE_HZ
    wait = bytes(second * 2)
    pcm = question + wait + question
    spoken, written = tmp_path / "in.wav", tmp_path / "out.wav"
    soundfile.write(spoken, np.frombuffer(pcm, "<i2"), user_sounds.RATE_HZ)
    status, output = run_in_files("--wav", str(spoken), "--out", str(written))
    assert status == 0, output
    summary = json.loads(output.splitlines()[-1])
    assert summary["turns"] == 2
    assert summary["cuts"] == 1
    assert set(summary["latency"]) == {"VAD", "STT", "LLM", "TTS", "total"}
    assert re.search(r"^│ p50 ", output, re.MULTILINE)
    cut = re.search(r"^agent +(.*) \| interrupted", output, re.MULTILINE)
    assert cut is not None and stand_ins.LINES[0].startswith(cut[1])
    tracks, rate_hz = soundfile.read(written)
    interrupted_at = (len(question) + len(wait)) // 2 * rate_hz // user_sounds.RATE_HZ
    agent = tracks[:, 0]
    first_answer = np.flatnonzero(agent[: interrupted_at + rate_hz])
    assert interrupted_at < first_answer[-1] < interrupted_at + 0.5 * rate_hz


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--wav", "missing.wav"], "No such file or directory: 'missing.wav'"),
        (["--wav", str(ROOT)], f"Is a directory: '{ROOT}'"),
        (["--wav", str(ROOT / "README.md")], "README.md: Format not recognised"),
    ],
)
def test_a_wrong_file_is_one_clear_line(
    served: ServerProcess, monkeypatch: pytest.MonkeyPatch, options: list[str], sentence: str
) -> None:
    """Status 1, and the last line names the file."""
    monkeypatch.setenv("VOICEAGENT_TTS_URL", served.websocket_url)
    with pytest.raises(SystemExit) as ended:
        local_mic.main(wav=Path(options[1]), out=Path("out.wav"))
    assert sentence in str(ended.value)


def test_a_machine_without_sound_devices_is_told_what_to_do(served: ServerProcess) -> None:
    """The last line names the missing device or library, and the way without; no banner."""
    result = subprocess.run(
        [sys.executable, "-m", "agents.local_mic"], cwd=ROOT, check=False,
        env={"PATH": "/nowhere", "HOME": "/nowhere", "VOICEAGENT_TTS_URL": served.websocket_url},
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode == 1, result.stdout
    last = result.stderr.splitlines()[-1]
    assert last.startswith(("no microphone was found; connect one", "PortAudio library not found"))
    assert last.endswith("; without devices: --wav in.wav --out out.wav")
    assert "Traceback" not in result.stderr and "Pipecat" not in result.stderr
