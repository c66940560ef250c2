"""Files of the command line."""

import os
import re
from pathlib import Path

import pytest

from testbed.command_line import CommandHere
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


COMMANDS = [
    ("detect", "pipe.wav"),
    ("detect", "/dev/zero"),
    ("say", "Hello.", "-o", "a.wav", "--lexicon", "pipe.wav"),
    ("batch", "texts", "-o", "out", "--url", "ws://127.0.0.1:1"),
    ("voices", "add", "anna", "pipe.wav", "--consent", "Anna", "--model", "base"),
    ("codec", "encode", "pipe.wav", "a.npz", "--model", "codec"),
    ("codec", "decode", "pipe.wav", "a.wav", "--model", "codec"),
    ("verify", "--model", "base", "--reference", "pipe.wav", "--text", "Hello."),
    ("bench", "latency", "--texts", "pipe.wav"),
]


@pytest.mark.parametrize("argv", COMMANDS, ids=" ".join)
def test_no_command_waits_for_a_pipe(
    argv: tuple[str, ...], command_here: CommandHere, tmp_path: Path
) -> None:
    """One line names it, and that a file is expected."""
    (tmp_path / "texts").mkdir()
    for pipe in ("pipe.wav", "texts/pipe.txt"):
        os.mkfifo(tmp_path / pipe)
    refused = command_here(*argv)
    assert (refused.status, refused.output) == (1, "")
    assert "expected a regular file, got a pipe or a device" in refused.errors
