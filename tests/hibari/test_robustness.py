"""Extreme texts and orders of commands: every context ends, and every word comes once."""

import random

import pytest

from testbed.espeak_driving import UNLIMITED, pcm_of, words_of
from testbed.hibari_driving import Driver
from testbed.random_texts import random_text
from voiceagent_tts.core import Reading
from voiceagent_tts.seam.commands import Append, Cancel, Credit, SpeechOptions, Submit
from voiceagent_tts.seam.events import Cancelled, Done, Failed
from voiceagent_tts.text.words import split_words


@pytest.mark.parametrize(
    ("seed", "texts"),
    [(1, 12), *(pytest.param(seed, 150, marks=pytest.mark.thorough) for seed in (2, 3))],
)
def test_random_texts_are_spoken_to_their_end(driver: Driver, seed: int, texts: int) -> None:
    """Every text ends with `Done`, with every word once, in order, inside the audio."""
    rng = random.Random(seed)
    for context in range(texts):
        text = random_text(rng)
        options = SpeechOptions(speed=rng.choice((0.5, 1.0, 2.0)))
        submit = Submit(context, text, 0, False, "heart", "en", options=options)
        events = driver.run(submit, Credit(context, 0.0, UNLIMITED))
        assert isinstance(events[-1], Done), (text, events[-1])
        samples = len(pcm_of(events, context)) // 2
        words = words_of(events, context)
        assert [word.word for word in words] == split_words(text), text
        borders = [border for word in words for border in (word.start_sample, word.end_sample)]
        assert borders == sorted(borders), text
        assert all(0 <= border <= samples for border in borders), text


@pytest.mark.parametrize(
    "unit",
    ["a", "1", "\u0301", "你好，", "This is a sentence, you know. "]
    + [
        pytest.param(unit, marks=pytest.mark.thorough)
        for unit in (".", "é", "\n", "[[", "<", "&amp;", "1 ", "'s", "$", "I. ")
    ],
)
def test_very_long_texts_begin_at_once(driver: Driver, unit: str) -> None:
    """100,000 characters of one kind are started, cancelled and followed by a normal text."""
    text = (unit * 100_000)[:100_000]
    driver.send(Submit(1, text, 0, False, "heart", "en"), Credit(1, 0.0, UNLIMITED))
    for _ in range(6):
        if driver.engine.step() is None:
            break
    driver.run(Cancel(1))
    words = [word.word for word in words_of(driver.events, 1)]
    assert words == split_words(text)[: len(words)]
    assert not any(isinstance(event, Failed) for event in driver.events)
    driver.speak("Hi.", voice="heart")


def test_one_word_of_5000_letters_is_spoken(driver: Driver) -> None:
    """It is one word of the history, from its first sound to at least its first part's end."""
    text = "Hi " + "abcde" * 1_000 + " there"
    events = driver.run(Submit(1, text, 0, False, "heart", "en"), Credit(1, 0.0, UNLIMITED))
    assert isinstance(events[-1], Done)
    first, long, last = words_of(events, 1)
    assert first.end_sample <= long.start_sample < long.end_sample <= last.start_sample


def test_readings_of_any_kind_are_spoken(driver: Driver) -> None:
    """Readings at borders, beside each other, overlapping and over white space end with `Done`."""
    text = "aaa bbb, ccc. ddd eee"
    spans = [(0, 3), (3, 4), (4, 7), (7, 9), (0, 21), (18, 21), (9, 13), (12, 14)]
    sayings = [
        ("x", None),
        ("engine x", None),
        ("Ab", "æb"),
        ("日", "日"),
        ("é", "e ˈe"),
        ("a", " "),
    ]
    rng = random.Random(3)
    for context in range(40):
        chosen = sorted(rng.sample(spans, rng.randrange(1, 5)))
        readings = tuple(Reading(*span, *rng.choice(sayings)) for span in chosen)
        submit = Submit(context, text, 0, False, "heart", "en", readings=readings)
        events = driver.run(submit, Credit(context, 0.0, UNLIMITED))
        assert isinstance(events[-1], Done), readings
        assert [word.word for word in words_of(events, context)] == split_words(text)


def test_random_cancels_leave_no_row_behind() -> None:
    """After 300 commands in random order every context has ended once, and no row is left."""
    driver = Driver(max_rows=20, threads=2)
    rng = random.Random(7)
    text = "Some text that is said."
    opened = set()
    for number in range(300):
        context = rng.randrange(max(0, number - 30), number + 1)
        command = rng.choice(
            (
                Submit(number, text, 0, rng.random() < 0.3, "heart", "en"),
                Append(context, " And more.", len(text), rng.random() < 0.5, "en"),
                Credit(context, rng.random(), rng.randrange(100_000)),
                Cancel(context),
                Cancel(context),
            )
        )
        if isinstance(command, Submit):
            opened.add(number)
        driver.send(command)
        driver.engine.step()
    driver.run(*map(Cancel, opened))
    driver.engine.close()
    ended = {e.context for e in driver.events if isinstance(e, Done | Failed | Cancelled)}
    assert opened <= ended
    assert driver.engine.rows_used == 0
    for context in opened:  # nothing follows an end but the answer to a cancel
        parts = [event for event in driver.events if getattr(event, "context", None) == context]
        first = next(i for i, e in enumerate(parts) if isinstance(e, Done | Failed | Cancelled))
        assert all(isinstance(event, Cancelled) for event in parts[first + 1 :]), context
