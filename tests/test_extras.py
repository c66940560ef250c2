"""Hints that say how to install what is missing."""

import re
from pathlib import Path

from voiceagent_tts.extras import install_hint

ROOT = Path(__file__).parents[1]


def test_a_hint_is_for_an_index_and_for_a_clone() -> None:
    """Both commands name all extras."""
    assert install_hint("server", "espeak") == (
        "pip install 'voiceagent-tts[server,espeak]' "
        "(in a clone: pip install -e '.[server,espeak]')"
    )


def test_every_hint_comes_from_one_function() -> None:
    """No other module of the product spells out such a command."""
    files = [path for name in ("voiceagent_tts", "livekit") for path in (ROOT / name).rglob("*.py")]
    spelled = [path.name for path in files if re.search("pip install", path.read_text("utf-8"))]
    assert spelled == ["extras.py"]
