"""Files of the command line."""

import re
from pathlib import Path

import pytest

from voiceagent_tts.cli.files import write_words
from voiceagent_tts.core import WordTimestamp
from voiceagent_tts.text.words import split_words


@pytest.mark.parametrize(
    "sentences",
    [
        ["Who is there?", "Nobody."],
        ['She said: "Wait here!"', "He did."],
        ["هل أنت بخير؟", "نعم."],
        ["मैं ठीक हूँ।", "और आप?"],
    ],
)
def test_a_subtitle_ends_with_its_sentence(tmp_path: Path, sentences: list[str]) -> None:
    """Whatever mark a language ends a sentence with, and whatever closes it."""
    words = split_words(" ".join(sentences))
    write_words(
        tmp_path / "a.srt",
        [WordTimestamp(word, 100 * n, 100 * n + 50, 1.0) for n, word in enumerate(words)],
    )
    content = (tmp_path / "a.srt").read_text(encoding="utf-8")
    assert re.findall(r"-->.*\n(.*)\n", content) == sentences
