"""A turn and its server contexts: each word is committed once, wherever contexts break off."""

from hypothesis import given
from hypothesis import strategies as st

from voiceagent_tts.adapters.pipecat.turn import PipecatTurn, SpokenWord
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, WordTimestamp, ms_to_samples
from voiceagent_tts.errors import ErrorCode, VoiceAgentError
from voiceagent_tts.protocol.client_connection import ClientAudio, ContextRecord, OpenOptions
from voiceagent_tts.protocol.messages import AudioFormat
from voiceagent_tts.text.words import split_words

TEXT = "One, two, three, four, five. Six, seven, eight, nine, ten."
WORD_MS = 400
LOST = VoiceAgentError("lost", code=ErrorCode.CONNECTION_LOST)


def new_turn(text: str = TEXT) -> PipecatTurn:
    """A turn with all its text and without a server context."""
    turn = PipecatTurn("turn", OpenOptions())
    turn.text = text
    return turn


def speak(turn: PipecatTurn, received_ms: int, rate_hz: int = SAMPLE_RATE_HZ) -> list[SpokenWord]:
    """Start a context, one word every 400 ms; return the words after `received_ms`."""
    record = ContextRecord(
        turn.next_server_context_id(),
        AudioFormat.model_validate({"sample_rate": rate_hz}),
        text=turn.rest,
        words=spoken(turn.rest),
    )
    record.last_start_sample = record.words[-1].start_sample if record.words else 0
    turn.start_context(record)
    return receive(turn, received_ms)


def receive(turn: PipecatTurn, received_ms: int) -> list[SpokenWord]:
    """Receive the context's first `received_ms` of audio; return the words that become audible."""
    assert turn.record is not None
    samples = received_ms * turn.record.audio.sample_rate // 1000
    pcm = bytes(BYTES_PER_SAMPLE * samples)
    turn.receive_audio(ClientAudio(turn.record.context_id, 0, 0, pcm))
    return turn.commit(turn.new_words())


def timed(words: list[SpokenWord]) -> list[tuple[str, float]]:
    """The words with their times."""
    return [(word.text, word.start_s) for word in words]


def spoken(text: str) -> list[WordTimestamp]:
    """Word times of `text`, without gaps."""
    length = ms_to_samples(WORD_MS)
    return [
        WordTimestamp(word, number * length, (number + 1) * length, confidence=1.0)
        for number, word in enumerate(split_words(text))
    ]


@given(st.lists(st.integers(0, 4000), max_size=8))
def test_each_word_is_committed_once_and_in_order(received_ms: list[int]) -> None:
    """Wherever contexts break off, the words joined are the text, and their times increase."""
    turn = new_turn()
    words: list[SpokenWord] = []
    for ms in received_ms:
        before = turn.samples
        words += speak(turn, ms)
        words += turn.commit(turn.break_off_context())
        assert turn.record is None
        assert turn.samples == before + ms_to_samples(ms)
        assert TEXT.endswith(turn.rest)
    words += speak(turn, 10 * WORD_MS)
    words += turn.commit(turn.finish_context(len(turn.rest)))
    assert turn.rest == ""
    assert [word.text for word in words] == TEXT.split()
    times = [word.start_s for word in words]
    assert times == sorted(times)


def test_words_that_were_noise_are_spoken_again_and_committed_once() -> None:
    """A context that lost its text had spoken two words; the noise is known until they are said."""
    turn = new_turn()
    words = speak(turn, 4 * WORD_MS)
    assert turn.record is not None
    turn.record.spoken_chars = turn.record.words[1].word.char_end
    turn.record.words = turn.record.words[:2]
    assert turn.has_lost_text and turn.commit(turn.break_off_context()) == []
    assert turn.rest == " three, four, five. Six, seven, eight, nine, ten."
    assert turn.noise == " three, four,"
    words += speak(turn, 10 * WORD_MS) + turn.commit(turn.finish_context(len(turn.rest)))
    assert [word.text for word in words] == TEXT.split()
    assert turn.noise == ""


def test_words_that_were_never_timed_are_committed_where_their_audio_ends() -> None:
    """Of three that a context had spoken before it lost its text, it had timed one."""
    turn = new_turn()
    speak(turn, 300)
    assert turn.record is not None
    turn.record.spoken_chars = turn.record.words[2].word.char_end
    turn.record.words = turn.record.words[:1]
    words = turn.commit(turn.break_off_context())
    assert timed(words) == [("two,", 0.3), ("three,", 0.3)]
    assert [word.text for word in speak(turn, 700)] == ["four,", "five."]


@given(st.integers(0, 4000), st.sampled_from([8000, 24_000, 48_000]))
def test_words_without_their_audio_are_not_committed(received_ms: int, rate_hz: int) -> None:
    """A word counts from its first 20 ms on; the next context starts after the last whole one."""
    turn = new_turn()
    words = speak(turn, received_ms, rate_hz) + turn.commit(turn.break_off_context())
    begun = sum(number * WORD_MS < received_ms - 20 for number in range(10))
    assert len(words) == begun
    whole = sum((number + 1) * WORD_MS - received_ms <= 80 for number in range(10))
    assert turn.rest.split() == TEXT.split()[whole:]


def test_a_word_that_is_spoken_again_keeps_its_first_time() -> None:
    """The word "two," broke off after its start was heard; it keeps the time of that start."""
    turn = new_turn()
    assert timed(speak(turn, 600)) == [("One,", 0.0), ("two,", 0.4)]
    assert turn.commit(turn.break_off_context()) == []
    assert turn.rest == " two, three, four, five. Six, seven, eight, nine, ten."
    words = speak(turn, 900)
    assert timed(words) == [("three,", 1.0), ("four,", 1.4)]
    last = words[-1].word
    assert last is not None
    assert (last.record.context_id, last.context_start) == ("turn-2", ms_to_samples(600))
    assert last.timestamp.word.char_end == len(" two, three, four,")
