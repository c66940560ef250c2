"""`voiceagent-tts detect`: whether an audio file has the watermark of this machine's keys."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from voiceagent_tts.audio.file_reader import read_audio
from voiceagent_tts.cli.files import read_file
from voiceagent_tts.cli.settings import read_settings
from voiceagent_tts.provenance.detector import FILE_LIMITS, detect
from voiceagent_tts.provenance.keys import watermark_keys


def detect_mark(path: Path) -> bool:
    """Print what was found in a file as one line of JSON; returns whether it is marked.

    Raises:
        InvalidRequestError: the file or the keys cannot be read.
    """
    keys = watermark_keys(read_settings({}))
    found = detect(read_audio(read_file(path), FILE_LIMITS), keys)
    sys.stdout.write(json.dumps(asdict(found)) + "\n")
    return found.is_marked
