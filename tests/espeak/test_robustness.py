"""Extreme texts: each program runs in a process of its own, which must not crash."""

import json
import subprocess
import sys

import pytest

RANDOM_TEXTS = """
import random
from testbed.random_texts import random_text
from testbed.segment_driving import UNLIMITED, Driver, pcm_of, words_of
from voiceagent_tts.seam.commands import Credit, SpeechOptions, Submit
from voiceagent_tts.seam.events import Done
from voiceagent_tts.espeak.catalogue import LANGUAGES
from voiceagent_tts.text.words import split_words

driver = Driver()
rng = random.Random(SEED)
for context in range(TEXTS):
    said = random_text(rng)
    language, voice = rng.choice(list(LANGUAGES)), rng.choice(driver.engine.capabilities.voices)
    options = SpeechOptions(speed=rng.choice((0.5, 1.0, 2.0)))
    submit = Submit(context, said, 0, False, voice, language, options=options)
    events = driver.run(submit, Credit(context, 0.0, UNLIMITED))
    assert isinstance(events[-1], Done), (context, events[-1])
    samples = len(pcm_of(events, context)) // 2
    words = words_of(events, context)
    assert [word.word for word in words] == split_words(said), context
    borders = [border for word in words for border in (word.start_sample, word.end_sample)]
    assert borders == sorted(borders) and all(0 <= border <= samples for border in borders), context
"""

LONG_TEXTS = """
from testbed.segment_driving import UNLIMITED, Driver, words_of
from voiceagent_tts.seam.commands import Cancel, Credit, Submit
from voiceagent_tts.seam.events import AudioStep, Done
from voiceagent_tts.text.words import split_words

UNITS = ("a", "1", ".", "e\\u0301", "\\u0301", "\\n", "[[", "<", "x\\0\\1\\2", "&amp;", "1 ",
    "'s", "\\u2019s", "?s", ".\\u00e9", ".\\u65e5 ", "\\u4f60\\u597d\\uff0c",
    "This is a sentence, you know. ")
driver = Driver()
for context, unit in enumerate(UNITS):
    said = (unit * 100_000)[:100_000]
    driver.send(Submit(context, said, 0, False, "default", "en"), Credit(context, 0.0, UNLIMITED))
    for _ in range(60):
        if driver.engine.step() is None:
            break
    driver.run(Cancel(context))
    words = [word.word for word in words_of(driver.events, context)]
    assert words == split_words(said)[: len(words)]
    driver.events.clear()
INDIC = ("(-\\u0928\\u0915", "s\\u0928-\\u0928\\u0928", "'-\\u09ac\\u09ac")
for context, said in enumerate(INDIC, 50):
    for language in ("en", "es", "ko"):
        submit = Submit(context, said, 0, False, "default", language)
        assert isinstance(driver.run(submit, Credit(context, 0.0, UNLIMITED))[-1], Done)
OTHERS = (("vi", "`a---c"), ("da", "ing" * 83), ("ro", "I" * 250))
for context, (voice, said) in enumerate(OTHERS, 60):
    submit = Submit(context, said, 0, False, voice, "en")
    assert isinstance(driver.run(submit, Credit(context, 0.0, UNLIMITED))[-1], Done)
last = driver.run(Submit(99, "Hi.", 0, False, "f1", "de"), Credit(99, 0.0, UNLIMITED))[-1]
assert isinstance(last, Done), last
"""


def run_program(program: str, *arguments: str) -> None:
    """Run `program` with assertions on; show its output if it crashes or fails."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", program, *arguments],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stderr[-3000:]}"


@pytest.mark.parametrize(
    ("seed", "texts"),
    [(1, 12), *(pytest.param(seed, 100, marks=pytest.mark.thorough) for seed in (1, 2))],
)
def test_random_texts_never_end_the_process(seed: int, texts: int) -> None:
    """Every text, voice and speed ends with `Done`, with every word once inside the audio."""
    run_program(RANDOM_TEXTS.replace("SEED", str(seed)).replace("TEXTS", str(texts)))


def test_very_long_texts_never_end_the_process() -> None:
    """100,000 characters of one kind can be started, cancelled and followed by a normal text."""
    run_program(LONG_TEXTS)


SHORT_TEXT = """
import json
import os
import sys
from testbed.segment_driving import UNLIMITED, Driver, words_of
from voiceagent_tts.seam.commands import Credit, Submit
from voiceagent_tts.seam.events import Done
from voiceagent_tts.text.words import split_words

wrong = []
for voice, language, said in json.loads(sys.argv[1]):
    if child := os.fork():
        if status := os.waitpid(child, 0)[1]:
            wrong.append((voice, language, said, status))
        continue
    driver = Driver()
    events = driver.run(Submit(0, said, 0, False, voice, language), Credit(0, 0.0, UNLIMITED))
    assert isinstance(events[-1], Done), events[-1]
    assert [word.word for word in words_of(events, 0)] == split_words(said)
    sys.exit()
assert not wrong, wrong
"""
SHORT_TEXTS = [
    ("default", "pt", "©Øre"),
    ("default", "pt", "Copyright ©Đorđević 2024"),
    ("default", "pt", "©. Ж"),
    ("default", "pt", "🥌 Жук"),
    ("default", "de", "🤠 Жук"),
    ("default", "de", "☪ 🤠"),
    ("hi", "en", "☦ Жук"),
    ("da", "en", ";-I"),
    ("da", "en", "Ja, '-en"),
    ("vi", "en", ";-I"),
    ("pa", "en", "Metro Ⓜ ⓜ line"),
    ("am", "en", "ⓜ"),
    ("vi-vn-x-south", "en", "ૠ ॠ"),
    ("tn", "en", "⣿ α"),
]
"""Voices, languages and texts."""


def test_a_short_text_never_ends_the_process() -> None:
    run_program(SHORT_TEXT, json.dumps(SHORT_TEXTS))
