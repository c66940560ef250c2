"""The server of the package `pocket-tts` beside our engine, on the same random weights."""

from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.service.pocket_peer import compare
from testbed.pocket import SMALL_MODEL


@pytest.mark.thorough
async def test_both_servers_speak_and_are_measured(tmp_path: Path) -> None:
    """Every section has complete utterances with sound, and no failure."""
    sections = await compare(SMALL_MODEL, 1, 3.0, tmp_path, Console(quiet=True))
    targets = [section["target"] for section in sections]
    assert targets == ["pocket-tts serve", "ours, HTTP", "ours, WebSocket, unpaced"]
    for section in sections:
        assert section["complete"] >= 1
        assert (section["failed"], section["silent"]) == (0, 0)
        assert section["measures"]["audible_ms"]["p50"] > 0
