"""The core works without its plugins."""

import os
import subprocess
import sys
from pathlib import Path

import voiceagent_tts
from testbed.watermarks import TEST_KEY
from voiceagent_tts.audio.file_reader import read_audio
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.plugins.provenance.detector import FILE_LIMITS, detect

_PACKAGE = Path(voiceagent_tts.__file__).parent
TEXT = "The quick brown fox jumps over the lazy dog, and the dog sleeps on in the warm sun. " * 2


def test_the_core_speaks_without_the_folder_of_plugins(tmp_path: Path) -> None:
    """`say` starts a server of a copy that has no `plugins` folder, and gets its audio.

    Nothing marks it, as the watermark is a plugin's.
    """
    copy = tmp_path / "voiceagent_tts"
    copy.mkdir()
    for part in _PACKAGE.iterdir():
        if part.name != "plugins":
            (copy / part.name).symlink_to(part)
    audio = tmp_path / "hello.wav"
    subprocess.run(
        [sys.executable, "-m", "voiceagent_tts", "say", TEXT, "-o", str(audio)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path), "VOICEAGENT_TTS_ENGINE": "espeak"},
        check=True,
        timeout=120,
    )
    samples = read_audio(audio.read_bytes(), FILE_LIMITS)
    assert len(samples) > 5 * SAMPLE_RATE_HZ
    assert not detect(samples, [TEST_KEY]).is_marked
