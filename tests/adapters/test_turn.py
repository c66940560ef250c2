"""Where a turn resumes after a server context broke off."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.scripted_server import Script, ScriptedServer
from testbed.waiting import PATIENCE_S
from voiceagent_tts.adapters.turn import (
    Turn,
    WholeCharacters,
    all_words,
    resume_position,
    surely_begun_at,
)
from voiceagent_tts.client import ClientSocket
from voiceagent_tts.client.transport import connect_websocket
from voiceagent_tts.core import Word, WordTimestamp, ms_to_samples
from voiceagent_tts.errors import EngineError
from voiceagent_tts.protocol.client_connection import ClientAudio, ContextRecord, OpenOptions
from voiceagent_tts.protocol.messages import AudioFormat, DoneMessage, DoneReason
from voiceagent_tts.protocol.refusals import WireState
from voiceagent_tts.text.words import split_words

TEXT = "Your order left our warehouse on Tuesday."
LENGTHS_MS = st.lists(st.integers(30, 600), min_size=7, max_size=7)


def timed(lengths_ms: list[int], *, confidence: float = 1.0) -> list[WordTimestamp]:
    """Word times of the text, without gaps."""
    timestamps, start = [], 0
    for word, length_ms in zip(split_words(TEXT), lengths_ms, strict=True):
        end = start + ms_to_samples(length_ms)
        timestamps.append(WordTimestamp(word, start, end, confidence))
        start = end
    return timestamps


def anywhere(word: Word) -> int:
    """All text was there before the audio."""
    return 0


PAUSES = {
    "comma": ("One, two", 5, 0.99, 40),
    "engine": ("One, two", 5, 1.0, 0),
    "no pause": ("One two", 4, 0.3, 0),
    "first": ("One two", 0, 0.3, 0),
    "wide mark": ("好,我", 2, 0.3, 40),
    "wide": ("好我", 1, 0.3, 0),
    "paragraph": ("One.\n\n“Two”", 6, 0.3, 40),
    "quote": ("“One.” two", 7, 0.3, 40),
    "bracket": ("(one) two", 6, 0.3, 0),
    "emphasis": ("**One.** two", 9, 0.3, 40),
    "line": ("One\ntwo", 4, 0.3, 40),
    "break": ('One <break time="1s"/> two', 23, 0.3, 40),
    "dash": ("one — two", 6, 0.3, 40),
    "currency": ("5€ two", 3, 0.3, 0),
    "percent": ("50% two", 4, 0.3, 0),
    "possessive": ("dogs' two", 6, 0.3, 0),
    "vowel sign": ("भाषा है", 5, 0.3, 0),
    "danda": ("हूँ। है", 5, 0.3, 40),
    "combining": ("cafe\u0301 two", 6, 0.3, 0),
    "tone marks": ("كِتَابٌ جَدِيدٌ", 8, 0.3, 0),
}
"""A text, where a word begins in it, the confidence of its time, and the doubt in milliseconds."""


@pytest.mark.parametrize(
    ("text", "char_start", "confidence", "doubt_ms"), PAUSES.values(), ids=PAUSES
)
def test_a_word_behind_a_pause_may_begin_later_than_an_aligner_says(
    text: str, char_start: int, confidence: float, doubt_ms: int
) -> None:
    """An engine knows where it begins, and so does an aligner between two words."""
    word = Word(text[char_start:], char_start, len(text))
    timestamp = WordTimestamp(word, 24_000, None, confidence)
    assert surely_begun_at(timestamp, text) == 24_000 + ms_to_samples(doubt_ms)


@pytest.mark.parametrize("moved_ms", [200, 399, 400, 450])
def test_a_word_is_voiced_once_audio_of_its_first_time_is_there(moved_ms: int) -> None:
    """An aligner may find it later at the end of the audio, or behind it; no answer is due."""
    turn = Turn("turn", OpenOptions())
    turn.text = "one two"
    first, last = (WordTimestamp(w, 0, None, 0.5) for w in split_words(turn.text))
    record = ContextRecord("1", AudioFormat(), last_start_sample=ms_to_samples(200))
    record.words = [first, replace(last, start_sample=ms_to_samples(moved_ms))]
    turn.start_context(record)
    for audio_ms, voiced in ((150, 3), (400, 7)):
        turn.receive_audio(ClientAudio("1", 0, 0, bytes(2 * ms_to_samples(audio_ms))))
        assert turn.voiced_char_end == voiced


@pytest.mark.parametrize(
    ("end", "is_owed"),
    [
        ('<break time="1s"/> ', False),
        ('<break time="1s"', False),
        ('<break time="1s"/>Two ', True),
        ("<spell>A7</spell> ", True),
        ("</b> ", False),
        ("<!-- not said --> ", False),
        ("[^1] ", False),
        ("&amp; ", False),
        ("😀 ", False),
        ("” ", False),
        ("\n\n- ", False),
        ("[Two](http://a.b) ", True),
        ("</b> two", False),
        ("</b> two ", True),
    ],
)
def test_audio_is_owed_for_text_of_which_something_is_said(end: str, is_owed: bool) -> None:
    """A model may pause for long behind markup or a mark."""
    turn = Turn("turn", OpenOptions())
    words = [WordTimestamp(word, 0, 2_400, 1.0) for word in split_words("One")]
    turn.start_context(ContextRecord("1", AudioFormat(), has_markup=True, words=words))
    turn.receive_audio(ClientAudio("1", 0, 0, bytes(2 * 2_400)))
    turn.text = "One. " + end
    assert turn.is_owed_audio == is_owed


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        (["a ", "\ud83d", "\ude00 b"], "a 😀 b"),
        (["a \ud83d", "", "\ude00"], "a 😀"),
        (["a \ud83d b", "\ude00 c"], "a \ufffd b\ufffd c"),
        (["a \ud83d"], "a \ufffd"),
        (["\ufeffa", "\udfff"], "\ufeffa\ufffd"),
    ],
)
def test_halves_of_characters_are_joined(pieces: list[str], text: str) -> None:
    """An LLM's server may stream UTF-16; half a character alone is the sign for that."""
    characters = WholeCharacters()
    assert "".join([*map(characters.add, pieces), characters.end()]) == text


async def test_only_the_server_ends_its_silence() -> None:
    """It counts from the last event, or from the text for which audio is owed."""
    async with ScriptedServer(Script((), end_s=PATIENCE_S)).running() as server:
        socket = await ClientSocket.over(await connect_websocket(server.addresses["ws"], {}))
        turn = Turn("turn", OpenOptions())
        assert turn.silent_s(5.0) is None, "no context speaks"
        record = turn.open_context(socket, lambda _: None, 10.0)
        assert turn.silent_s(20.0) is None, "nothing to speak"
        turn.append("One", 20.0)
        assert turn.silent_s(30.0) is None, "the word may grow"
        for now_s in range(30, 38):
            turn.append(" two", float(now_s))
        assert turn.silent_s(38.0) == 8.0
        turn.note_answer(39.0)
        assert turn.silent_s(40.0) == 1.0
        words = split_words(turn.text)
        record.words = [WordTimestamp(word, 240 * n, None, 1.0) for n, word in enumerate(words)]
        turn.receive_audio(ClientAudio("turn", 0, 0, bytes(2 * 2_400)))
        assert turn.silent_s(50.0) is None, "all words are voiced, and the last one may grow"
        turn.end_text(60.0)
        assert turn.silent_s(61.0) == 1.0
        await socket.aclose()


@pytest.mark.parametrize(("asked_s", "waits_s"), [(0.0, [0.0, 0.3, 0.3]), (1.5, [1.5] * 3)])
def test_a_turn_waits_as_long_as_the_server_asks(asked_s: float, waits_s: list[float]) -> None:
    """The wait that the server requests also applies to the first attempt."""
    turn = Turn("turn", OpenOptions())
    assert [turn.next_wait_s(asked_s) for _ in waits_s] == waits_s


@given(LENGTHS_MS, st.integers(0, 5000))
def test_a_word_is_spoken_again_unless_nearly_all_of_its_audio_arrived(
    lengths_ms: list[int], received_ms: int
) -> None:
    """A word is spoken again if its audio is incomplete, however short the word is."""
    words, received = timed(lengths_ms), ms_to_samples(received_ms)
    place = resume_position(words, len(words), received)
    assert place in (0, *(word.word.char_end for word in words))
    for word in words:
        assert word.end_sample is not None
        missing = word.end_sample - received
        if word.word.char_end <= place:
            assert missing <= ms_to_samples(80)
            assert missing <= (word.end_sample - word.start_sample) / 2
        else:
            assert missing > 0


@given(LENGTHS_MS, st.integers(1, 6), st.integers(0, 5000))
def test_unknown_words_are_estimated_at_the_pace_of_known_ones(
    lengths_ms: list[int], told: int, received_ms: int
) -> None:
    """Estimates increase, and an estimated word never counts as the last complete word."""
    words = timed(lengths_ms, confidence=0.5)
    guessed = all_words(TEXT, words[:told], anywhere)
    assert [timestamp.word for timestamp in guessed] == split_words(TEXT)
    starts = [timestamp.start_sample for timestamp in guessed]
    assert starts == sorted(starts)
    place = resume_position(guessed, told, ms_to_samples(received_ms))
    behind = [timestamp for timestamp in guessed if timestamp.word.char_end <= place]
    if len(behind) > told:
        following = guessed[len(behind)]
        assert following.start_sample <= ms_to_samples(received_ms)


def test_an_aligner_that_is_nearly_certain_may_still_owe_words() -> None:
    """Only an engine's own times are certain; the words behind an aligner's are estimated."""
    words = timed([300] * 7, confidence=0.99)[:3]
    guessed = all_words(TEXT, words, anywhere)
    assert [timestamp.word for timestamp in guessed] == split_words(TEXT)
    audio = ms_to_samples(300 * 7)
    assert resume_position(guessed, len(words), audio) > words[-1].word.char_end


async def test_a_word_begins_behind_the_audio_that_came_before_its_text() -> None:
    """An LLM that pauses has not written the next words when those before them are spoken."""
    async with ScriptedServer(Script((), end_s=PATIENCE_S)).running() as server:
        socket = await ClientSocket.over(await connect_websocket(server.addresses["ws"], {}))
        turn = Turn("turn", OpenOptions())
        record = turn.open_context(socket, lambda _: None, 0.0)
        turn.append("One two th", 0.0)
        record.words = [
            WordTimestamp(word, 4_800 * index, None, 0.5)
            for index, word in enumerate(split_words("One two"))
        ]
        turn.receive_audio(ClientAudio("1", 0, 0, bytes(2 * 40_000)))
        turn.append("ree four five ", 0.0)
        turn.receive_audio(ClientAudio("1", 1, 40_000, bytes(2 * 1_000)))
        _, _, three = turn.break_off_context()
        assert three.start_sample == 40_000  # the fourth is not audible yet
        assert turn.rest.split() == ["three", "four", "five"]
        await socket.aclose()


MARKED = 'Hi, <break time="300ms"/> to <spell>A7 42X</spell> in New York, <sub alias="x">y z</sub>.'


@pytest.mark.parametrize("told", range(1, 4))
def test_a_context_that_breaks_off_resumes_between_tags(told: int) -> None:
    """No tag and no span of the lexicon is divided, and its words are the client's characters."""
    record = ContextRecord(
        "1", AudioFormat(), text=MARKED, lexicon={"New York": "the big apple"}, has_markup=True
    )
    spans = ["Hi,", "to", "<spell>A7 42X</spell>", "in", "New York,"]
    spans.append('<sub alias="x">y z</sub>.')
    starts = [MARKED.index(span) for span in spans]
    words = [
        Word(span, start, start + len(span)) for span, start in zip(spans, starts, strict=True)
    ]
    record.words = [
        WordTimestamp(word, 9_600 * n, None, 0.5) for n, word in enumerate(words[:told])
    ]
    places, audible = [(each.char_start, each.char_end) for each in words], list[Word]()
    for received in range(0, 9_600 * 20, 4_800):
        turn = Turn("1", OpenOptions())
        turn.append(MARKED, 0.0)
        turn.start_context(record)
        turn.receive_audio(ClientAudio("1", 0, 0, pcm=bytes(2 * received)))
        audible = [each.timestamp.word for each in turn.break_off_context()]
        assert [(each.char_start, each.char_end) for each in audible] == places[: len(audible)]
        assert len(MARKED) - len(turn.rest) in (0, *(word.char_end for word in words))
    assert len(audible) == len(words)


def start(turn: Turn, words: list[Word], late_ms: int = 0) -> ContextRecord:
    """A context speaks `words`, which an aligner times, each after 300 ms."""
    record = ContextRecord(turn.next_server_context_id(), AudioFormat(), text=turn.rest)
    record.words = [
        WordTimestamp(word, ms_to_samples(300 * index + late_ms), None, 0.99)
        for index, word in enumerate(words)
    ]
    turn.start_context(record)
    return record


def receive(turn: Turn, audio_ms: int) -> None:
    """So much audio of the context arrives at once."""
    turn.receive_audio(ClientAudio("1", 0, 0, bytes(2 * ms_to_samples(audio_ms))))


def test_a_word_that_broke_off_keeps_the_time_at_which_it_was_heard_first() -> None:
    """The next context speaks it again, and knows better when; a later one has the better time."""
    turn = Turn("turn", OpenOptions())
    turn.append("One two three four", 0.0)
    start(turn, split_words(turn.text))
    receive(turn, 710)
    words = [*turn.new_words(), *turn.break_off_context()]
    assert turn.rest == " three four"
    record = start(turn, split_words(turn.rest), late_ms=160)
    receive(turn, 900)
    words += turn.new_words()
    assert [turn.text[: each.char_end] for each in words] == [
        "One", "One two", "One two three", "One two three four"
    ]  # fmt: skip
    assert [each.begun_at for each in words] == [ms_to_samples(ms) for ms in (0, 300, 600, 1_170)]
    record.words[1] = replace(record.words[1], start_sample=ms_to_samples(560))
    assert [each.begun_at for each in words[2:]] == [ms_to_samples(ms) for ms in (600, 1_270)]
    record.final_words = [replace(each, start_sample=ms_to_samples(500)) for each in record.words]
    assert [each.begun_at for each in words[2:]] == [ms_to_samples(ms) for ms in (600, 1_210)]


def test_words_of_audio_that_never_came_are_returned_when_they_are_spoken() -> None:
    """After a context broke off, the next one speaks them; each word counts once."""
    turn = Turn("turn", OpenOptions())
    turn.append("One two three four", 0.0)
    start(turn, split_words(turn.text))
    receive(turn, 310)
    assert len(turn.new_words()) == 1, "less than 20 ms of the second one have arrived"
    assert turn.break_off_context() == [] and turn.rest == " two three four"
    start(turn, split_words(turn.rest))
    receive(turn, 900)
    assert [each.start_sample for each in turn.new_words()] == [
        ms_to_samples(ms) for ms in (310, 610, 910)
    ]


def done(reason: DoneReason, chars: int) -> DoneMessage:
    """The end of a context that has got so many characters."""
    return DoneMessage(
        context_id="turn", reason=reason, audio_ms=0, chars=chars, ttfa_ms=None, gen_ms=None
    )


@pytest.mark.parametrize(
    ("reason", "rest"), [("complete", ""), ("idle", ""), ("limit", " three four")]
)
def test_what_a_context_leaves_depends_on_why_it_ended(reason: DoneReason, rest: str) -> None:
    """The audio of one at its limit may end within a word, which is spoken again."""
    turn = Turn("turn", OpenOptions())
    turn.append("One two three four", 0.0)
    start(turn, split_words(turn.text)).state = WireState.TEXT_ENDED
    receive(turn, 710)
    turn.receive(done(reason, len(turn.text)), 0.0)
    assert turn.rest == rest and turn.record is None


@pytest.mark.parametrize("reason", ["error", "limit"])
def test_a_context_that_ended_otherwise_has_failed(reason: DoneReason) -> None:
    """Also one that spoke no word up to its limit; the host decides whether another one tries."""
    turn = Turn("turn", OpenOptions())
    turn.append("One two three four", 0.0)
    start(turn, split_words(turn.text)).state = WireState.TEXT_ENDED
    receive(turn, 100)
    with pytest.raises(EngineError, match=f"the server ended a turn: {reason}"):
        turn.receive(done(reason, 0), 0.0)
    assert turn.record is not None
