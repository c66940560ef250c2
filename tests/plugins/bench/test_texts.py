from pathlib import Path

import pytest

from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.bench.texts import (
    KINDS,
    LANGUAGES,
    choose_texts,
    committed_texts,
    texts_in,
)


def test_every_language_has_every_kind() -> None:
    """Ten languages, six kinds, 20 to 500 characters, no text twice."""
    texts = committed_texts()
    assert {(text.language, text.kind) for text in texts} == {
        (language, kind) for language in LANGUAGES for kind in KINDS
    }
    assert all(20 <= len(text.text) <= 500 for text in texts)
    assert len({text.text for text in texts}) == len(texts)


def test_texts_are_chosen_by_name() -> None:
    """Names choose; an unknown one is refused with those that exist."""
    assert {text.kind for text in choose_texts(["de"], ["menu", "short"])} == {"menu", "short"}
    assert len(choose_texts([], [])) == len(committed_texts())
    for languages, kinds in ((["tlh"], []), ([], ["poem"])):
        with pytest.raises(InvalidRequestError, match="expected some of"):
            choose_texts(languages, kinds)


def test_a_file_has_one_text_on_each_line(tmp_path: Path) -> None:
    """Blank lines are left out; a file without a text, or not in UTF-8, is refused."""
    path = tmp_path / "texts.txt"
    path.write_text("One.\n\n  Two.  \n", "utf-8")
    assert [text.text for text in texts_in(path, "en")] == ["One.", "Two."]
    path.write_text("\n")
    with pytest.raises(InvalidRequestError, match="got none"):
        texts_in(path, "en")
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidRequestError, match="UTF-8"):
        texts_in(path, "en")
