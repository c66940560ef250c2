"""Extreme texts and orders of commands: every context ends, and every word comes once.

What may end the process of espeak has programs of its own (`tests/espeak/test_robustness.py`).
"""

import random

import pytest

from testbed.kokoro import QUICK, THOROUGH
from testbed.random_texts import random_text
from testbed.segment_driving import Driver, Start, append, credit, of_type, samples_of, words_of
from voiceagent_tts.core import Reading
from voiceagent_tts.seam.commands import Cancel, SpeechOptions, Submit
from voiceagent_tts.seam.events import Cancelled, Done, Event, Failed, SegmentEnd
from voiceagent_tts.text.words import split_words

every = pytest.mark.parametrize("engine", ["espeak", "hibari", "pocket", QUICK], indirect=True)


def check_spoken(driver: Driver, events: list[Event], submit: Submit) -> None:
    """The context ended; if the engine knows words, each came once, in order, inside the audio."""
    text, context = submit.text, submit.context
    assert isinstance(events[-1], Done), (text, events[-1])
    if not driver.engine.capabilities.has_native_words:
        return
    words = words_of(events, context)
    assert [word.word for word in words] == split_words(text), text
    borders = [border for word in words for border in (word.start_sample, word.end_sample)]
    assert borders == sorted(borders), text
    assert all(0 <= border <= samples_of(events, context) for border in borders), text


@pytest.mark.parametrize("text", [" ", "...", "\U0001f600", "\x00\x07", "---\n", "—", "« »"])
def test_text_without_speech_ends_at_once(driver: Driver, text: str) -> None:
    assert driver.run(driver.submit(1, text)) == [SegmentEnd(1, len(text), 0), Done(1, 0)]
    driver.run(driver.submit(2, "Hi.", more=True), credit(2))
    end = of_type(SegmentEnd, driver.events)[-1].end_sample
    events = driver.run(append(2, text, 3))
    assert events == [SegmentEnd(2, 3 + len(text), end), Done(2, end)]


def test_a_context_may_be_opened_and_ended_without_text(driver: Driver) -> None:
    assert driver.run(driver.submit(1, "", more=True)) == []
    assert driver.run(append(1, "", 0)) == [Done(1, 0)]
    assert driver.run(driver.submit(2, "")) == [Done(2, 0)]


@pytest.mark.parametrize(
    "text",
    ["a", "\x00Hi\x07 you", "?! Yes", "你好。", "Say 你好 now.", "مرحبا", "नमस्ते", "Ünïcödé – “ok”"],
)
def test_any_script_is_spoken_to_its_end(driver: Driver, text: str) -> None:
    submit = driver.submit(1, text)
    check_spoken(driver, driver.run(submit, credit(1)), submit)


@pytest.mark.parametrize(
    ("engine", "texts"),
    [
        ("hibari", 8),
        pytest.param("hibari", 300, marks=(pytest.mark.thorough, pytest.mark.costly)),
        pytest.param("pocket", 40, marks=(pytest.mark.thorough, pytest.mark.costly)),
        pytest.param("kokoro", 4, marks=THOROUGH.marks),
        # Alone on two cores: 250 s.
        pytest.param(
            "kokoro", 40, marks=(*THOROUGH.marks, pytest.mark.costly, pytest.mark.timeout(1_200))
        ),
    ],
    indirect=["engine"],
)
def test_random_texts_are_spoken_to_their_end(driver: Driver, engine: str, texts: int) -> None:
    """By every voice, at any speed."""
    rng = random.Random(texts)
    voices = driver.engine.capabilities.voices if engine == "kokoro" else [driver.voice]
    most_chars = 60 if engine == "kokoro" else None
    for context in range(texts):
        options = SpeechOptions(speed=rng.choice((0.5, 1.0, 2.0)))
        text, voice = random_text(rng)[:most_chars], rng.choice(voices)
        submit = driver.submit(context, text, voice=voice, options=options)
        check_spoken(driver, driver.run(submit, credit(context)), submit)


@pytest.mark.parametrize(
    ("engine", "unit"),
    [
        *(("hibari", unit) for unit in ("a", "1", "This is one, you know. ")),
        *(
            pytest.param("hibari", unit, marks=pytest.mark.thorough)
            for unit in ("\u0301", "你好，", "[[", "&amp;", "$", "I. ")
        ),
        pytest.param("kokoro", "Yes. ", marks=THOROUGH.marks),
        pytest.param("pocket", "This is one, you know. ", marks=pytest.mark.thorough),
    ],
    indirect=["engine"],
)
def test_very_long_texts_begin_at_once(driver: Driver, unit: str) -> None:
    """100,000 characters of one kind are started, cancelled and followed by a normal text."""
    text = (unit * 100_000)[:100_000]
    driver.send(driver.submit(1, text), credit(1))
    for _ in range(2):
        driver.engine.step()
    driver.run(Cancel(1))
    words = [word.word for word in words_of(driver.events, 1)]
    assert words == split_words(text)[: len(words)]
    assert not of_type(Failed, driver.events)
    assert driver.speak("Hi.")


@every
def test_one_word_of_5000_letters_is_one_word(driver: Driver) -> None:
    """It is said in parts, and cancelled after its first ones."""
    text = "Hi " + "abcde" * 1_000
    driver.send(driver.submit(1, text), credit(1))
    for _ in range(2):
        driver.engine.step()
    words = words_of(driver.events, 1)
    assert [word.word for word in words] == split_words(text)[: len(words)]
    assert samples_of(driver.events, 1) > 0
    assert driver.run(Cancel(1)) == [Cancelled(1)]


@pytest.mark.parametrize("engine", ["espeak", "hibari", THOROUGH], indirect=True)
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
    for context in range(20):
        chosen = sorted(rng.sample(spans, rng.randrange(1, 5)))
        readings = tuple(Reading(*span, *rng.choice(sayings)) for span in chosen)
        submit = driver.submit(context, text, readings=readings)
        check_spoken(driver, driver.run(submit, credit(context)), submit)


def test_random_commands_leave_no_row_behind(start: Start) -> None:
    """After 200 commands in random order every context has ended once, and no row is left."""
    driver = start(max_rows=20, threads=2)
    rng = random.Random(7)
    opened = set()
    for number in range(200):
        context = rng.randrange(max(0, number - 30), number + 1)
        command = rng.choice(
            (
                driver.submit(number, "Some text.", more=rng.random() < 0.3),
                append(context, " And more.", 10, more=rng.random() < 0.5),
                credit(context, rng.randrange(60_000), rng.random()),
                Cancel(context),
                Cancel(context),
            )
        )
        if isinstance(command, Submit):
            opened.add(number)
        driver.send(command, after_inbox_calls=rng.randrange(2))
        if rng.random() < 0.5:
            driver.engine.step()
    driver.run(*map(Cancel, opened))
    assert driver.engine.rows_used == 0
    ended = (Done, Failed, Cancelled)
    for context in opened:  # nothing follows an end but the answer to a cancel
        parts = [event for event in driver.events if getattr(event, "context", None) == context]
        first = next(i for i, event in enumerate(parts) if isinstance(event, ended))
        assert all(isinstance(event, Cancelled) for event in parts[first + 1 :]), context
