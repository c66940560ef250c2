"""The core works without its plugins."""

import os
import subprocess
import sys
from pathlib import Path

import voiceagent_tts

_PACKAGE = Path(voiceagent_tts.__file__).parent


def test_the_core_speaks_without_the_folder_of_plugins(tmp_path: Path) -> None:
    """`say` starts a server of a copy that has no `plugins` folder, and gets its audio."""
    copy = tmp_path / "voiceagent_tts"
    copy.mkdir()
    for part in _PACKAGE.iterdir():
        if part.name != "plugins":
            (copy / part.name).symlink_to(part)
    audio = tmp_path / "hello.wav"
    subprocess.run(
        [sys.executable, "-m", "voiceagent_tts", "say", "Hello there.", "-o", str(audio)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path), "VOICEAGENT_TTS_ENGINE": "espeak"},
        check=True,
        timeout=120,
    )
    assert audio.stat().st_size > 20_000
