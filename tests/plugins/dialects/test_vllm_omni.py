import base64
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.protocol_ends import refusal
from voiceagent_tts.core import SAMPLE_RATE_HZ, Word, WordTimestamp
from voiceagent_tts.errors import EngineError, ErrorCode
from voiceagent_tts.plugins.dialects.vllm_omni import VllmOmni
from voiceagent_tts.protocol.messages import (
    Close,
    ContextEnd,
    ContextOpen,
    ContextText,
    Prepare,
    SessionLimits,
)
from voiceagent_tts.protocol.refusals import RefusedMessageError
from voiceagent_tts.protocol.server_connection import Answer, ServerConnection, WireMessages

_CONFIG = {
    "task_type": "Base",
    "response_format": "pcm",
    "stream_audio": True,
    "speed": 1.0,
    "voice": "nova",
    "language": "Auto",
    "x_vector_only_mode": True,
}
"""What the Baseten plugin sends at least, and a field that means nothing here."""
_SYNC = {"timestamp_type": "word", "timestamp_transport_strategy": "sync"}
_ASYNC = {"timestamp_type": "word", "timestamp_transport_strategy": "async"}
_TEXT = "One, two. Three."
_SPANS = [("One,", 0.1, 0.3), ("two.", 0.4, 0.7), ("Three.", 1.0, 1.4)]


def _connection(**limits: Any) -> ServerConnection:
    values = {"max_text_chars": 99, "context_idle_s": 9, "max_audio_s": 9, "max_lead_s": 9}
    dialect = VllmOmni(lambda: ["nova", "ash"])
    connection = ServerConnection(SessionLimits(**values | limits), dialect)
    assert connection.ready(session_id="s", model="m") == [], "this dialect has no greeting"
    assert dialect.is_sequential
    return connection


def _message(kind: str, **fields: Any) -> str:
    return json.dumps({"type": kind, **fields})


def _configured(**fields: Any) -> ServerConnection:
    connection = _connection()
    connection.receive(_message("session.config", **_CONFIG | fields))
    return connection


def _say(connection: ServerConnection, text: str = _TEXT) -> str:
    """Begin an utterance; returns its context."""
    opened, said = connection.receive(_message("input.text", text=text))
    assert isinstance(opened, ContextOpen) and isinstance(said, ContextText)
    assert said.text == text
    _opened(connection, opened.context_id)
    return opened.context_id


def _opened(connection: ServerConnection, context_id: str) -> None:
    messages = connection.opened(context_id, voice="nova", language="en", seed=None, queue_ms=0)
    assert messages == [], "this dialect does not say that a context is open"


def _timestamps(spans: Sequence[tuple[str, float, float | None]]) -> list[WordTimestamp]:
    """Words as the engine tells them, each behind the last in the text."""
    words: list[WordTimestamp] = []
    char = 0
    for text, start_s, end_s in spans:
        end = None if end_s is None else round(end_s * SAMPLE_RATE_HZ)
        word = Word(text, char, char + len(text))
        words.append(WordTimestamp(word, round(start_s * SAMPLE_RATE_HZ), end, confidence=1.0))
        char += len(text) + 1
    return words


def _audio(
    connection: ServerConnection, context_id: str, start_s: float, end_s: float
) -> WireMessages:
    """The context's audio from here to there, 80 ms a message; every sample is its own number."""
    messages: WireMessages = []
    start, end = round(start_s * SAMPLE_RATE_HZ), round(end_s * SAMPLE_RATE_HZ)
    while start < end:
        stop = min(end, start + 1_920)
        messages += connection.audio(context_id, _pcm(start, stop), start)
        start = stop
    return messages


def _pcm(start: int, stop: int) -> bytes:
    return np.arange(start, stop).astype("<i2").tobytes()


def _finished(
    connection: ServerConnection, context_id: str, reason: Any = "complete"
) -> WireMessages:
    connection.receive(_message("input.done"))
    return connection.done(context_id, reason, chars=len(_TEXT))


def _spoken(**fields: Any) -> WireMessages:
    """All that comes for `_TEXT`, in 1.5 s of audio."""
    connection = _configured(**fields)
    context_id = _say(connection)
    messages = connection.words(context_id, _timestamps(_SPANS))
    messages += _audio(connection, context_id, 0, 1.5)
    return messages + _finished(connection, context_id)


def _kinds(messages: WireMessages) -> list[str]:
    """What came, audio in a row as one `pcm`."""
    kinds = [
        "pcm" if isinstance(message, bytes) else json.loads(message)["type"] for message in messages
    ]
    return [kind for i, kind in enumerate(kinds) if kind != "pcm" or kinds[i - 1 : i] != ["pcm"]]


class _Client:
    """Reads as the stock plugin does: words count from the samples before `audio.start`."""

    def __init__(self, messages: WireMessages) -> None:
        self.pcm = b""
        self.words: list[tuple[str, float, float]] = []
        self.known_at: list[tuple[int, int]] = []
        """First sample of each binary message, and how many words were known when it came."""
        self.sentences: list[dict[str, Any]] = []
        self.done: list[dict[str, Any]] = []
        offset_s = 0.0
        for message in messages:
            if isinstance(message, bytes):
                self.known_at.append((len(self.pcm) // 2, len(self.words)))
                self.pcm += message
                continue
            event = json.loads(message)
            match event["type"]:
                case "audio.start":
                    assert event["sentence_index"] == len(self.sentences)
                    self.sentences.append(event)
                    offset_s = len(self.pcm) / 2 / SAMPLE_RATE_HZ
                case "audio.done":
                    self._align(event.get("timestamp_info", {}), offset_s)
                case "audio.timestamps":
                    self._align(event, offset_s)
                case "session.done":
                    self.done.append(event)

    def _align(self, info: dict[str, Any], offset_s: float) -> None:
        alignment = info.get("word_alignment", {})
        lists = [alignment.get(f"word_{edge}_times_seconds", []) for edge in ("start", "end")]
        for word, start, end in zip(alignment.get("words", []), *lists, strict=True):
            self.words.append((word, round(offset_s + start, 6), round(offset_s + end, 6)))


# What a client may send.


def test_a_config_makes_the_voice_ready() -> None:
    """It is where an unknown voice is found out, and it says nothing else."""
    commands = _connection().receive(_message("session.config", **_CONFIG, instructions="calm"))
    assert commands == [Prepare(voice="nova", language="Auto", instruct="calm")]


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({}, {"voice": "nova", "language": "Auto", "speed": 1.0, "timestamps": "word"}),
        ({"voice": None, "speaker": "nova"}, {"voice": "nova"}),
        (
            dict.fromkeys(("response_format", "word_timestamps", "timestamp_transport_strategy")),
            {"voice": "nova"},
        ),
        ({"voice": None, "language": "German"}, {"voice": None, "language": "German"}),
        ({"instructions": "calm", "speed": 1.5}, {"instruct": "calm", "speed": 1.5}),
        ({"seed": -1}, {"seed": 2**53 - 1}),
        ({"initial_codec_chunk_frames": 0}, {"initial_frames": None}),
        ({"initial_codec_chunk_frames": 99}, {"initial_frames": 16}),
    ],
)
def test_options_are_those_of_a_context(fields: Any, options: Any) -> None:
    """Each option of the dialect is one of ours."""
    opened = _configured(**fields).receive(_message("input.text", text="Hi"))[0]
    assert isinstance(opened, ContextOpen)
    assert {name: getattr(opened, name) for name in options} == options


def test_text_is_spoken_as_it_comes() -> None:
    """It does not wait for `input.done`; empty text is nothing."""
    connection = _configured()
    assert connection.receive(_message("input.text", text="")) == []
    context_id = _say(connection, "One")
    assert connection.receive(_message("input.text", text="")) == []
    assert connection.receive(_message("input.text", text=", two")) == [
        ContextText(context_id=context_id, text=", two")
    ]
    assert connection.receive(_message("input.done")) == [ContextEnd(context_id=context_id)]
    assert connection.receive(_message("session.close")) == [Close()]


def test_nothing_may_precede_the_config() -> None:
    """Text and its end are refused."""
    connection = _connection()
    for data in (_message("input.text", text="Hi"), _message("input.done")):
        assert "session.config first" in refusal(connection, data).message


def test_a_config_waits_for_the_end_of_the_utterance() -> None:
    """In the middle it is refused; behind `input.done` it holds for the next utterance.

    vLLM-Omni calls the voice `speaker`, too.
    """
    connection = _configured()
    _say(connection)
    assert "input.done first" in refusal(connection, _message("session.config")).message
    connection.receive(_message("input.done"))
    connection.receive(_message("session.config", speaker="ash"))
    opened = connection.receive(_message("input.text", text="Hi"))[0]
    assert isinstance(opened, ContextOpen) and opened.voice == "ash"


def test_an_end_without_text_is_answered_at_once() -> None:
    """It is how clients find out whether a parked socket still lives."""
    connection = _configured()
    for index in range(2):
        [answer] = connection.receive(_message("input.done"))
        assert isinstance(answer, Answer) and isinstance(answer.data, str)
        assert json.loads(answer.data) == {
            "type": "session.done",
            "utterance_index": index,
            "total_sentences": 0,
        }


def test_ends_are_answered_in_order() -> None:
    """What ends without text behind an utterance that is spoken waits for it, as does the next."""
    connection = _configured()
    first = _say(connection)
    connection.receive(_message("input.done"))
    assert connection.receive(_message("input.done")) == []
    third = _say(connection)
    connection.receive(_message("input.done"))
    _audio(connection, first, 0, 0.5)
    done = connection.done(first, "complete", chars=3)
    assert [json.loads(message)["utterance_index"] for message in done[-2:]] == [0, 1]
    last = _Client(_audio(connection, third, 0, 0.5) + connection.done(third, "complete", chars=3))
    assert [event["utterance_index"] for event in last.done] == [2]
    assert last.sentences[0]["utterance_index"] == 2


def test_few_ends_wait_for_an_answer() -> None:
    """Each was kept behind an utterance that is spoken, and all were answered in one turn."""
    connection = _configured()
    context_id = _say(connection)
    connection.receive(_message("input.done"))
    kept = refused = 0
    for _ in range(3000):
        try:
            assert connection.receive(_message("input.done")) == []
            kept += 1
        except RefusedMessageError as error:
            assert error.code == ErrorCode.TOO_MANY_CONTEXTS
            refused += 1
    assert (kept, refused) == (1023, 1977)
    with pytest.raises(RefusedMessageError):
        connection.receive(_message("input.text", text="Hello."))
    answers = connection.done(context_id, "complete", chars=len(_TEXT))
    assert _kinds(answers).count("session.done") == 1024
    assert len(connection.receive(_message("input.done"))) == 1


@pytest.mark.parametrize(
    ("data", "code", "named"),
    [
        ("hello", ErrorCode.INVALID_JSON, "JSON"),
        ("", ErrorCode.INVALID_JSON, "JSON"),
        ("[]", ErrorCode.INVALID_MESSAGE, "object"),
        (b"\xff\xfe", ErrorCode.INVALID_MESSAGE, "binary"),
        (r'{"type":"input.text","text":"\ud800"}', ErrorCode.INVALID_JSON, "JSON"),
        ("[" * 30_000, ErrorCode.INVALID_JSON, "JSON"),
        ({"text": "hi"}, ErrorCode.INVALID_MESSAGE, "type"),
        ({"type": "dance"}, ErrorCode.UNKNOWN_TYPE, "dance"),
        ({"type": "input.text"}, ErrorCode.INVALID_MESSAGE, "input.text.text"),
        ({"type": "input.text", "text": 7}, ErrorCode.INVALID_PARAM, "input.text.text"),
        ({"type": "input.text", "text": "a" * 100_000}, ErrorCode.MESSAGE_TOO_BIG, "input.text"),
        ({"type": "voice.add", "name": "me"}, ErrorCode.INVALID_PARAM, "voices add"),
        ({"type": "session.config", "voice": 7}, ErrorCode.INVALID_PARAM, "voice"),
        ({"type": "session.config", "speed": 9}, ErrorCode.INVALID_PARAM, "speed"),
        ({"type": "session.config", "response_format": "mp3"}, ErrorCode.INVALID_PARAM, "'mp3'"),
        ({"type": "session.config", "ref_audio": "QUJD"}, ErrorCode.INVALID_PARAM, "ref_audio"),
        (
            {"type": "session.config", "split_granularity": "words"},
            ErrorCode.INVALID_PARAM,
            "split_granularity",
        ),
        (
            {"type": "session.config", "initial_codec_chunk_frames": "1"},
            ErrorCode.INVALID_PARAM,
            "initial_codec_chunk_frames",
        ),
    ],
)
def test_what_is_wrong_is_said(data: Any, code: ErrorCode, named: str) -> None:
    """As an `error` of the dialect, with our code; the session goes on as it was configured."""
    connection = _configured()
    error = refusal(connection, json.dumps(data) if isinstance(data, dict) else data)
    [message] = connection.refused(error)
    told = json.loads(message)
    assert told.keys() == {"type", "message", "code"}
    assert (told["type"], told["code"]) == ("error", code)
    assert named in told["message"]
    assert "QUJD" not in told["message"]
    opened = connection.receive(_message("input.text", text="Hi"))[0]
    assert isinstance(opened, ContextOpen) and opened.voice == "nova"


# What a server says.


def test_audio_is_framed_by_sentences() -> None:
    """By default, and without words: each sentence has its start, text, samples and end."""
    messages = _spoken()
    one = ["audio.start", "pcm", "audio.done"]
    assert _kinds(messages) == [*one, *one, "session.done"]
    client = _Client(messages)
    assert client.pcm == _pcm(0, 36_000)
    assert [start["sentence_text"] for start in client.sentences] == ["One, two.", "Three."]
    assert {(start["format"], start["sample_rate"]) for start in client.sentences} == {
        ("pcm", 24_000)
    }
    done = [json.loads(f) for f in messages if isinstance(f, str) and "audio.done" in f]
    assert [event["total_bytes"] for event in done] == [48_000, 24_000]
    assert all(not event["error"] and "timestamp_info" not in event for event in done)
    assert client.done == [{"type": "session.done", "utterance_index": 0, "total_sentences": 2}]


@pytest.mark.parametrize(("split", "sentences"), [("none", 1), ("sentence", 2), ("clause", 3)])
def test_the_client_may_say_how_to_split(split: str, sentences: int) -> None:
    """Words are then told behind the sentence in which they sound, on its own clock."""
    client = _Client(_spoken(**_SYNC, split_granularity=split))
    assert len(client.sentences) == sentences
    assert client.words == _SPANS
    assert client.pcm == _pcm(0, 36_000)


@given(
    gaps=st.lists(st.integers(0, 500), min_size=1, max_size=8),
    sizes=st.lists(st.integers(1, 3), min_size=8, max_size=8),
    strategy=st.sampled_from([_SYNC, _ASYNC]),
)
def test_words_come_before_they_are_heard(
    gaps: list[int], sizes: list[int], strategy: dict[str, str]
) -> None:
    """However words are batched: the plugin has each, at its time, before its first sample."""
    connection = _configured(**strategy)
    context_id = _say(connection)
    starts = np.cumsum([gap + 1 for gap in gaps]) / 1000
    spans = [(f"w{index}", float(s), float(s)) for index, s in enumerate(starts)]
    messages: WireMessages = []
    words = _timestamps(spans)
    position_s = 0.0
    for size in sizes:
        batch, words = words[:size], words[size:]
        if not batch:
            break
        messages += connection.words(context_id, batch)
        until_s = words[0].start_sample / SAMPLE_RATE_HZ if words else starts[-1] + 0.1
        messages += _audio(connection, context_id, position_s, until_s)
        position_s = until_s
    messages += _finished(connection, context_id)
    client = _Client(messages)
    assert [word for word, _, _ in client.words] == [word for word, _, _ in spans]
    assert [start for _, start, _ in client.words] == pytest.approx(starts, abs=1e-3)
    for first_sample, known in client.known_at:
        heard = sum(start * SAMPLE_RATE_HZ <= first_sample for start in starts)
        assert known >= heard
    assert len(client.done) == 1


@pytest.mark.parametrize("strategy", [_SYNC, _ASYNC])
def test_words_that_come_behind_their_audio_keep_their_time(strategy: dict[str, str]) -> None:
    """An aligner may find a word after its audio was sent, but before it was heard."""
    connection = _configured(**strategy)
    context_id = _say(connection)
    messages = connection.words(context_id, _timestamps(_SPANS)[:1])
    messages += _audio(connection, context_id, 0, 1.2)
    messages += connection.words(context_id, _timestamps(_SPANS)[1:2])
    messages += _audio(connection, context_id, 1.2, 1.5)
    messages += connection.words(context_id, _timestamps(_SPANS)[2:])
    messages += _finished(connection, context_id)
    client = _Client(messages)
    assert client.words == _SPANS
    assert client.pcm == _pcm(0, 36_000)


def test_words_of_vllm_omni_follow_their_sentence() -> None:
    """With `word_timestamps` audio is JSON, and the last chunk of a sentence has its words."""
    events = [json.loads(message) for message in _spoken(word_timestamps=True)]
    chunks = [event for event in events if event["type"] == "audio.chunk"]
    assert b"".join(base64.b64decode(c["audio_b64"]) for c in chunks) == _pcm(0, 36_000)
    told = [chunk["timestamps"] for chunk in chunks if chunk["audio_b64"] == ""]
    assert told == [
        [
            {"word": "One,", "start_ms": 100, "end_ms": 300},
            {"word": "two.", "start_ms": 400, "end_ms": 700},
        ],
        [{"word": "Three.", "start_ms": 0, "end_ms": 400}],
    ]
    assert all(chunk["timestamps"] is None for chunk in chunks if chunk["audio_b64"])
    ends = [(c["chunk_start_ms"], c["chunk_end_ms"]) for c in chunks if c["sentence_index"] == 1]
    assert ends[0][0] == 0 and ends[-1] == (0, 500)
    assert [c["chunk_id"] for c in chunks if c["sentence_index"] == 1] == list(range(len(ends)))


def test_words_without_an_end_get_one() -> None:
    """The plugin cannot read a null: the next word's start, or a guess."""
    connection = _configured(**_SYNC)
    context_id = _say(connection)
    spans = [("One,", 0.1, None), ("two.", 0.4, None)]
    client = _Client(connection.words(context_id, _timestamps(spans)))
    assert client.words == [("One,", 0.1, 0.4), ("two.", 0.4, pytest.approx(0.667, abs=1e-3))]


def test_words_that_never_sounded_are_told() -> None:
    """A guess may lie behind the end of the audio: the plugin would lose its word."""
    connection = _configured(**_SYNC, split_granularity="sentence")
    context_id = _say(connection)
    messages = _audio(connection, context_id, 0, 0.9)
    messages += connection.words(context_id, _timestamps(_SPANS))
    messages += _finished(connection, context_id)
    assert [word for word, _, _ in _Client(messages).words] == ["One,", "two.", "Three."]


def test_a_failure_is_told_and_ends_the_utterance() -> None:
    """`error`, then `audio.done` that says so; text that still comes is dropped up to its end."""
    connection = _configured(**_SYNC)
    context_id = _say(connection)
    messages = _audio(connection, context_id, 0, 0.1)
    messages += connection.error(EngineError("it died"), context_id)
    messages += connection.done(context_id, "error", chars=3)
    assert _kinds(messages) == ["audio.start", "pcm", "error", "audio.done"]
    assert json.loads(messages[-1])["error"] is True
    assert connection.receive(_message("input.text", text="More.")) == []
    [answer] = connection.receive(_message("input.done"))
    assert isinstance(answer, Answer) and isinstance(answer.data, str)
    assert '"session.done"' in answer.data
    assert _say(connection) != context_id


def test_an_utterance_outlives_its_context() -> None:
    """Where a client paused too long, what it says then is spoken in a new context."""
    connection = _configured()
    first = _say(connection)
    messages = _audio(connection, first, 0, 0.1) + connection.done(first, "idle", chars=3)
    assert _kinds(messages) == ["audio.start", "pcm", "audio.done"]
    second = _say(connection)
    assert second != first
    messages += _audio(connection, second, 0, 0.1) + _finished(connection, second)
    client = _Client(messages)
    assert [start["sentence_index"] for start in client.sentences] == [0, 1]
    assert client.done[0]["total_sentences"] == 2


def test_signs_alone_are_answered_with_silence() -> None:
    """An agent framework takes a text without any audio for a failure; nothing for a blank one."""
    connection = _configured(**_SYNC)
    messages = _finished(connection, _say(connection, "..."))
    assert _kinds(messages) == ["audio.start", "pcm", "audio.done", "session.done"]
    assert _Client(messages).pcm == bytes(4_800)
    assert _kinds(_finished(connection, _say(connection, " \n"))) == ["session.done"]
