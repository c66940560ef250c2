"""Sets of texts: committed, published, from files, and recordings with theirs."""

from pathlib import Path

import pytest

from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.bench.quality.test_sets import Item, recordings_in


def test_recordings_have_the_names_of_items_or_their_own_texts(tmp_path: Path) -> None:
    """Other files are left out; a folder without any is refused."""
    (tmp_path / "a.wav").touch()
    (tmp_path / "other.wav").touch()
    item = Item("a", "Hello.")
    assert recordings_in(tmp_path, [item], "en") == [(item, tmp_path / "a.wav")]
    (tmp_path / "other.txt").write_text("Good day.\n")
    (found, path) = recordings_in(tmp_path, [item], "de")[0]
    assert (found.text, found.language, path.name) == ("Good day.", "de", "other.wav")
    with pytest.raises(InvalidRequestError, match="2 others"):
        (tmp_path / "other.txt").unlink()
        recordings_in(tmp_path, [Item("b", "x")], "en")
