import base64
import json
from typing import Any

import pytest

from voiceagent_tts.core import Word, WordTimestamp, ms_to_samples
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.plugins.dialects.elevenlabs import ElevenLabs
from voiceagent_tts.plugins.dialects.elevenlabs_messages import (
    OutputFormat,
    SocketOptions,
    voice_name,
)
from voiceagent_tts.protocol.messages import (
    Close,
    ContextCancel,
    ContextEnd,
    ContextFlush,
    ContextOpen,
    ContextText,
    SessionLimits,
)
from voiceagent_tts.protocol.refusals import RefusedMessageError
from voiceagent_tts.protocol.server_connection import Command, ServerConnection


def _connection(
    *, is_multi: bool = True, counts_from_context: bool = False, **query: str
) -> ServerConnection:
    options = SocketOptions.parse({"output_format": "pcm_24000", **query})
    dialect = ElevenLabs(
        "nova", options, is_multi=is_multi, counts_from_context=counts_from_context
    )
    limits = SessionLimits(max_text_chars=99, context_idle_s=9, max_audio_s=9, max_lead_s=9)
    connection = ServerConnection(limits, dialect)
    assert connection.ready(session_id="s", model="m") == [], "ElevenLabs sends no greeting"
    return connection


def _receive(connection: ServerConnection, **fields: Any) -> list[Command]:
    return connection.receive(json.dumps(fields))


def _begin(connection: ServerConnection, context_id: str = "c", text: str = "Hi there. ") -> str:
    """Open a context with a text; return the name that the server has for it."""
    opened, *_ = _receive(connection, text=text, context_id=context_id)
    assert isinstance(opened, ContextOpen)
    connection.opened(opened.context_id, voice="nova", language="en", seed=None, queue_ms=0)
    return opened.context_id


def _sent(messages: list[str | bytes]) -> list[dict[str, Any]]:
    return [json.loads(message) for message in messages]


def _end(
    connection: ServerConnection, reason: Any = "complete", name: str = "c"
) -> list[dict[str, Any]]:
    return _sent(connection.done(name, reason, chars=9))


WORDS = [
    WordTimestamp(Word("Hi", 0, 2), 0, ms_to_samples(100), 1.0),
    WordTimestamp(Word("there.", 3, 9), ms_to_samples(150), ms_to_samples(300), 1.0),
]


def test_the_address_has_the_options() -> None:
    """Voice, language, format, seed, markup and time-out of a context are those of the address."""
    query = {"language_code": "de", "seed": "7", "enable_ssml_parsing": "true"}
    query |= {"output_format": "ulaw_8000", "inactivity_timeout": "60", "auto_mode": "true"}
    commands = _receive(
        _connection(**query), text="Hi", context_id="c", voice_settings={"speed": 1.2}
    )
    opened, text = commands
    assert isinstance(opened, ContextOpen)
    assert (opened.voice, opened.language, opened.seed, opened.speed) == ("nova", "de", 7, 1.2)
    assert (opened.audio.encoding, opened.audio.sample_rate) == ("pcm_mulaw", 8000)
    assert (opened.idle_s, opened.markup, opened.max_buffer_delay_ms) == (60, True, 0)
    assert text == ContextText(context_id="c", text="Hi "), "a complete phrase ends with a space"


def test_text_is_joined_verbatim() -> None:
    """Without `auto_mode` pieces of words are not torn apart; a flush ends a phrase."""
    connection = _connection()
    _begin(connection, text="Hel")
    assert _receive(connection, text="lo", context_id="c") == [
        ContextText(context_id="c", text="lo")
    ]
    assert _receive(connection, text="", context_id="c", flush=True) == [
        ContextText(context_id="c", text=" "),
        ContextFlush(context_id="c", flush_id=1),
    ]


def test_an_empty_text_keeps_alive() -> None:
    """With a context it resets its time-out; without one it is nothing."""
    connection = _connection()
    assert _receive(connection, text="") == []
    _begin(connection)
    assert _receive(connection, text="", context_id="c") == [ContextText(context_id="c", text=" ")]


def test_a_flushed_context_is_spoken_to_its_end() -> None:
    """A close behind a flush ends the text; a second close is an interruption."""
    connection = _connection()
    _begin(connection)
    _receive(connection, context_id="c", flush=True)
    assert _receive(connection, context_id="c", close_context=True) == [ContextEnd(context_id="c")]
    assert _receive(connection, context_id="c", close_context=True) == [
        ContextCancel(context_id="c")
    ]


def test_a_close_in_the_middle_of_the_text_is_an_interruption() -> None:
    """Text behind the last flush is dropped with its context."""
    connection = _connection()
    _begin(connection)
    assert _receive(connection, context_id="c", close_context=True) == [
        ContextCancel(context_id="c")
    ]
    assert _receive(connection, context_id="unknown", close_context=True) == []


def test_audio_has_the_characters_that_it_begins() -> None:
    """Each chunk of audio carries its context, and the characters of its words."""
    connection = _connection()
    _begin(connection)
    assert connection.words("c", WORDS) == []
    pcm = bytes(2 * 2400)
    (first,) = _sent(connection.audio("c", pcm[:4000], 0))
    (second,) = _sent(connection.audio("c", pcm[:4000], 2000))
    assert base64.b64decode(first["audio"]) == pcm[:4000]
    assert first["contextId"] == "c" and first["isFinal"] is False
    assert first["alignment"] == first["normalizedAlignment"]
    assert first["alignment"] == {
        "chars": ["H", "i", " "],
        "charStartTimesMs": [0, 50, 100],
        "charDurationsMs": [50, 50, 50],
        "charsDurationsMs": [50, 50, 50],
    }
    assert "".join(second["alignment"]["chars"]) == "there. "
    assert _end(connection) == [{"audio": None, "isFinal": True, "contextId": "c"}]


def test_a_socket_without_contexts_closes_behind_its_text() -> None:
    """`stream-input`: an empty text ends it, and its last message closes the socket with 1000."""
    connection = _connection(is_multi=False)
    name = _begin(connection)
    (ended,) = _receive(connection, text="")
    assert isinstance(ended, ContextEnd)
    (silent, final) = _end(connection, name=name)
    assert len(base64.b64decode(silent["audio"])) == 4_800, (
        "a text without audio is 100 ms of silence"
    )
    assert final == {"audio": None, "isFinal": True}
    assert connection.dialect.closing == (1000, "")


def test_an_end_without_text_is_answered() -> None:
    """`stream-input` without text: the last message, and the close."""
    answer, close = _receive(_connection(is_multi=False), text="")
    assert "isFinal" in str(answer)
    assert close == Close()


def test_a_closed_context_does_not_open_again() -> None:
    """Late text of an interrupted reply is refused, and costs neither the socket nor a row."""
    connection = _connection()
    _begin(connection)
    _receive(connection, context_id="c", flush=True, close_context=True)
    _end(connection)
    with pytest.raises(RefusedMessageError) as refused:
        _receive(connection, text="late", context_id="c")
    (message,) = _sent(connection.refused(refused.value))
    assert message["error"] == "context_exists"
    assert connection.dialect.closing is None


def test_refused_text_has_no_place_in_the_alignment() -> None:
    """Text that the context does not accept is forgotten, and moves no space between words."""
    connection = _connection()
    _begin(connection, text="one")
    too_long = InvalidRequestError("too much text waits", code=ErrorCode.TEXT_TOO_LONG)
    for _ in range(2):
        _receive(connection, text="x" * 1000, context_id="c")
        connection.error(too_long, "c")
    _receive(connection, text=" two", context_id="c")
    words = [
        WordTimestamp(Word("one", 0, 3), 0, 2400, 1.0),
        WordTimestamp(Word("two", 4, 7), 2400, 4800, 1.0),
    ]
    connection.words("c", words)
    (chunk,) = _sent(connection.audio("c", bytes(4096), 0))
    (rest,) = _sent(connection.audio("c", bytes(4096), 2048))
    assert "".join(chunk["alignment"]["chars"] + rest["alignment"]["chars"]) == "one two "


def test_contexts_may_have_no_name() -> None:
    """Messages without an id share a context, and may open another one behind it."""
    connection = _connection()
    for _ in range(2):
        opened, *_ = _receive(connection, text="Hi. ")
        assert isinstance(opened, ContextOpen)
        name = opened.context_id
        connection.opened(name, voice="nova", language="en", seed=None, queue_ms=0)
        assert _receive(connection, flush=True)
        assert _receive(connection, close_context=True) == [ContextEnd(context_id=name)]
        assert "contextId" not in _end(connection, name=name)[-1]


def test_a_socket_is_left_behind_its_complete_contexts() -> None:
    """`close_socket` waits for flushed and closed contexts; others are dropped."""
    connection = _connection()
    assert _receive(connection, close_socket=True) == [Close()]
    _begin(connection)
    _receive(connection, context_id="c", flush=True)
    _receive(connection, context_id="c", close_context=True)
    assert _receive(connection, close_socket=True) == []
    _end(connection)
    assert connection.dialect.closing == (1000, "")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pcm_32000", OutputFormat("pcm_s16le", None, 32000)),
        ("alaw_8000", OutputFormat("pcm_alaw", None, 8000)),
        ("mp3_22050_32", OutputFormat("pcm_s16le", "mp3", 22050)),
        ("opus_48000_128", OutputFormat("pcm_s16le", "opus", 48000)),
    ],
)
def test_formats_are_read_by_name(name: str, expected: OutputFormat) -> None:
    """ElevenLabs' names of formats."""
    assert OutputFormat.parse(name) == expected


def test_voices_of_another_library_are_the_first_voice() -> None:
    """An id of ElevenLabs' own voices selects the server's first; a name of ours is kept."""
    foreign = "hpp4J3VqNfWAUOO0d1Us"
    assert voice_name(foreign, ["nova"]) is None
    assert voice_name(foreign, [foreign]) == foreign
    assert voice_name("nobody", ["nova"]) == "nobody"
