import base64
import json
from typing import Any

import pytest

from testbed.protocol_ends import refusal
from voiceagent_tts.core import Word, WordTimestamp
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.plugins.dialects.cartesia import Cartesia
from voiceagent_tts.protocol.messages import (
    AudioFormat,
    ContextEnd,
    ContextOpen,
    ContextText,
    SessionLimits,
)
from voiceagent_tts.protocol.server_connection import Command, ServerConnection, WireMessages

_UUID = "f786b574-daa5-4673-aa0c-cbe3e8534c02"
_FORMAT = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24000}
_AUDIO = AudioFormat(transport="base64")


def _connection(**limits: Any) -> ServerConnection:
    values = {"max_text_chars": 99, "context_idle_s": 9, "max_audio_s": 9, "max_lead_s": 9}
    connection = ServerConnection(SessionLimits(**values | limits), Cartesia())
    assert connection.ready(session_id="s", model="m") == [], "Cartesia sends no greeting"
    return connection


def _request(transcript: str = "Hi there. ", /, context_id: str = "c", **fields: Any) -> str:
    """A request as the stock clients send it, more to follow unless told otherwise."""
    whole = {
        "context_id": context_id,
        "transcript": transcript,
        "continue": True,
        "model_id": "sonic-3",
        "voice": {"mode": "id", "id": "nova"},
        "output_format": _FORMAT,
        "language": "en",
        "add_timestamps": True,
        "use_normalized_timestamps": False,
        "pronunciation_dict_id": "d",
    }
    return json.dumps(whole | fields)


def _begin(connection: ServerConnection, data: str | None = None) -> list[Command]:
    """A request that opens a context, and the context opened."""
    commands = connection.receive(data or _request())
    opened = connection.opened("c", voice="nova", language="en", seed=None, queue_ms=0)
    assert opened == [], "Cartesia does not say that a context is open"
    return commands


def _events(messages: WireMessages) -> list[dict[str, Any]]:
    return [json.loads(message) for message in messages]


# What a client may send.


def test_the_first_request_opens_and_speaks() -> None:
    """Its voice, language, format and word times are the context's."""
    assert _begin(_connection()) == [
        ContextOpen(
            context_id="c",
            voice="nova",
            language="en",
            audio=_AUDIO,
            timestamps="word",
            markup=True,  # Cartesia's protocol has tags
        ),
        ContextText(context_id="c", text="Hi there. "),
    ]


def test_later_requests_only_add_text() -> None:
    """Verbatim, whatever else they repeat; the last one ends the context, with text or without."""
    connection = _connection()
    _begin(connection, _request("Hel"))
    assert connection.receive(_request("lo")) == [ContextText(context_id="c", text="lo")]
    assert connection.receive(_request("", **{"continue": False})) == [ContextEnd(context_id="c")]


def test_a_request_that_is_not_continued_is_a_whole_context() -> None:
    """`continue` is false where it is missing, as at Cartesia."""
    data = json.loads(_request())
    del data["continue"]
    commands = _begin(_connection(), json.dumps(data))
    assert [type(command) for command in commands] == [ContextOpen, ContextText, ContextEnd]


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({"voice": {"mode": "id", "id": _UUID}}, {"voice": None}),
        ({"voice": {"mode": "id", "id": None}}, {"voice": None}),
        ({"voice": None}, {"voice": None}),
        ({"voice": {"mode": None, "id": "nova"}}, {"voice": "nova"}),
        ({"language": None}, {"language": None}),
        ({"cancel": False, "max_buffer_delay_ms": None}, {"voice": "nova"}),
        ({"cancel": None, "generation_config": None}, {"voice": "nova"}),
        ({"add_timestamps": False}, {"timestamps": "none"}),
        ({"generation_config": {"speed": 1.5, "emotion": "calm"}}, {"speed": 1.5}),
        ({"max_buffer_delay_ms": 5000}, {"max_buffer_delay_ms": 3000}),
        (
            {"output_format": {"container": "raw", "encoding": "pcm_mulaw", "sample_rate": 8000}},
            {"audio": AudioFormat(encoding="pcm_mulaw", sample_rate=8000, transport="base64")},
        ),
    ],
)
def test_options_are_those_of_a_context(fields: Any, options: Any) -> None:
    """A voice of Cartesia's library becomes the default voice; longer delays become our maximum."""
    opened = _begin(_connection(), _request(**fields))[0]
    assert isinstance(opened, ContextOpen)
    assert {name: getattr(opened, name) for name in options} == options


def test_pieces_that_are_not_buffered_are_kept_apart() -> None:
    """With `max_buffer_delay_ms` 0 each transcript is whole, and white space parts it from more."""
    connection = _connection()
    [_, first] = _begin(connection, _request("One.", max_buffer_delay_ms=0))
    assert first == ContextText(context_id="c", text="One. ")
    second = connection.receive(_request("Two. ", max_buffer_delay_ms=0))
    assert second == [ContextText(context_id="c", text="Two. ")]


def test_text_after_the_end_is_refused() -> None:
    """While the context is spoken, and when it is done; a new id is fine."""
    connection = _connection()
    _begin(connection, _request(**{"continue": False}))
    assert refusal(connection, _request()).code == ErrorCode.CONTEXT_CLOSED
    connection.done("c", "complete", chars=9)
    for _ in range(2):
        error = refusal(connection, _request())
        assert (error.code, error.refuses_open) == (ErrorCode.CONTEXT_EXISTS, False)
        [event] = _events(connection.refused(error))
        assert (event["context_id"], event["error_code"]) == ("c", "context_exists")
    assert len(connection.receive(_request(context_id="d"))) == 2


@pytest.mark.parametrize(
    ("fields", "code", "named"),
    [
        ({"transcript": 7}, ErrorCode.INVALID_PARAM, "request.transcript"),
        ({"voice": "nova"}, ErrorCode.INVALID_PARAM, "request.voice"),
        ({"voice": {"mode": "embedding", "embedding": [0.1]}}, ErrorCode.INVALID_PARAM, "mode"),
        ({"output_format": {}}, ErrorCode.INVALID_MESSAGE, "output_format"),
        ({"output_format": _FORMAT | {"container": "mp3"}}, ErrorCode.INVALID_PARAM, "container"),
        ({"output_format": _FORMAT | {"sample_rate": 11025}}, ErrorCode.INVALID_PARAM, "rate"),
        ({"output_format": _FORMAT | {"encoding": "opus"}}, ErrorCode.INVALID_PARAM, "encoding"),
        ({"continue": "yes"}, ErrorCode.INVALID_PARAM, "request.continue"),
        ({"flush": 1}, ErrorCode.INVALID_PARAM, "request.flush"),
        ({"max_buffer_delay_ms": -1}, ErrorCode.INVALID_PARAM, "max_buffer_delay_ms"),
        ({"generation_config": {"speed": 9}}, ErrorCode.INVALID_PARAM, "speed"),
    ],
)
def test_a_bad_field_is_named(fields: Any, code: ErrorCode, named: str) -> None:
    """In Cartesia's shape, with its context, which is over; the next context is not touched."""
    connection = _connection()
    error = refusal(connection, _request(**fields))
    assert error.code == code
    told, done = _events(connection.refused(error))
    assert told["type"] == "error" and not told["done"]
    assert (told["context_id"], told["status_code"], told["error_code"]) == ("c", 400, code)
    assert named in told["message"]
    assert (done["type"], done["context_id"], done["done"]) == ("done", "c", True)
    assert len(connection.receive(_request(context_id="d"))) == 2


def test_a_bad_request_does_not_end_a_context_that_speaks() -> None:
    """It is refused, and the context goes on."""
    connection = _connection()
    _begin(connection)
    answers = _events(connection.refused(refusal(connection, _request(transcript=[]))))
    assert [answer["type"] for answer in answers] == ["error"]
    assert connection.receive(_request("More.")) == [ContextText(context_id="c", text="More.")]


def test_what_could_not_be_opened_is_done() -> None:
    """Too many contexts: an error and `done`, and the dialect forgets the context."""
    connection = _connection(max_contexts=1)
    _begin(connection)
    error = refusal(connection, _request(context_id="d"))
    told, done = _events(connection.refused(error))
    assert (told["error_code"], told["status_code"]) == ("too_many_contexts", 429)
    assert (done["type"], done["context_id"]) == ("done", "d")
    for over in ("d", "never was"):
        assert connection.receive(json.dumps({"context_id": over, "cancel": True})) == []


# What a server says.


def test_audio_and_words_are_cartesias() -> None:
    """Samples in base64, word times in seconds; an end that is not known is guessed."""
    connection = _connection()
    _begin(connection)
    words = [
        WordTimestamp(Word("Hi", 0, 2), 2_400, None, confidence=1.0),
        WordTimestamp(Word("there.", 3, 9), 7_200, None, confidence=0.0),
    ]
    [event] = _events(connection.words("c", words))
    assert event == {
        "type": "timestamps",
        "context_id": "c",
        "status_code": 206,
        "done": False,
        "flush_id": 1,
        "word_timestamps": {"words": ["Hi", "there."], "start": [0.1, 0.3], "end": [0.3, 0.7]},
    }
    [event] = _events(connection.audio("c", b"\x01\x02", 0))
    assert event == {
        "type": "chunk",
        "context_id": "c",
        "status_code": 206,
        "done": False,
        "flush_id": 1,
        "data": base64.b64encode(b"\x01\x02").decode(),
        "step_time": 0.0,
    }
    assert _events(connection.done("c", "complete", chars=10)) == [
        {"type": "done", "context_id": "c", "status_code": 200, "done": True}
    ]


def test_an_error_is_not_the_end() -> None:
    """Not `done`, which LiveKit's plugin takes for the end of a turn that went well."""
    connection = _connection()
    _begin(connection)
    error = InvalidRequestError("too much", code=ErrorCode.TEXT_TOO_LONG)
    [event] = _events(connection.error(error, "c"))
    assert event == {
        "type": "error",
        "context_id": "c",
        "status_code": 400,
        "done": False,
        "error_code": "text_too_long",
        "title": "Text too long",
        "message": "too much",
    }


@pytest.mark.parametrize(
    ("encoding", "sample_rate", "sample"),
    [
        ("pcm_s16le", 24000, bytes(2)),
        ("pcm_f32le", 48000, bytes(4)),
        ("pcm_mulaw", 8000, b"\xff"),
        ("pcm_alaw", 8000, b"\xd5"),
    ],
)
def test_signs_alone_are_answered_with_silence(
    encoding: Any, sample_rate: Any, sample: bytes
) -> None:
    """100 ms in the client's format; nothing at all for a transcript that is blank."""
    audio = {"container": "raw", "encoding": encoding, "sample_rate": sample_rate}
    connection = _connection()
    _begin(connection, _request("...", output_format=audio, **{"continue": False}))
    chunk, done = _events(connection.done("c", "complete", chars=3))
    assert base64.b64decode(chunk["data"]) == sample * (sample_rate // 10)
    assert done["type"] == "done"
    connection.receive(_request(" ", context_id="d", **{"continue": False}))
    assert len(connection.done("d", "complete", chars=1)) == 1
