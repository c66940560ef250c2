import json
import math
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from voiceagent_tts.core import EXACT_CONFIDENCE, MAX_MESSAGE_PCM_BYTES, Word, WordTimestamp
from voiceagent_tts.errors import (
    EngineError,
    ErrorCode,
    InvalidRequestError,
    OverloadedError,
    UnauthorizedError,
)
from voiceagent_tts.protocol import messages
from voiceagent_tts.protocol.client_connection import (
    ProtocolError,
    error_of,
    parse_audio,
    parse_base64_audio,
    parse_server_message,
    timestamps_of,
)
from voiceagent_tts.protocol.messages import (
    AudioBase64Message,
    AudioFormat,
    AudioMessage,
    ContextOpen,
    ContextText,
    ErrorMessage,
    WordList,
    WordsMessage,
    parse_client_message,
)
from voiceagent_tts.protocol.refusals import RefusedMessageError

_SECRET = "swordfish"


def _refusal(data: str) -> RefusedMessageError:
    with pytest.raises(RefusedMessageError) as caught:
        parse_client_message(data)
    return caught.value


def _open_with(**fields: Any) -> str:
    return json.dumps({"type": "context.open", "context_id": "c", **fields})


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ("", ErrorCode.INVALID_JSON),
        ("{", ErrorCode.INVALID_JSON),
        ("{'type':'ping'}", ErrorCode.INVALID_JSON),
        ('{"type":"ping"} {}', ErrorCode.INVALID_JSON),
        ("[" * 60_000, ErrorCode.INVALID_JSON),
        ('{"type":"ping","x":' * 10_000 + "1" + "}" * 10_000, ErrorCode.INVALID_JSON),
        ('{"type":"ping","t":' + "9" * 60_000 + "}", ErrorCode.INVALID_JSON),
        ('{"type":"text","context_id":"c","text":"\\ud800"}', ErrorCode.INVALID_JSON),
        ('{"type":"text","context_id":"c","text":"\ud800"}', ErrorCode.INVALID_JSON),
        ('{"type":"text","context_id":"c","text":"\x00"}', ErrorCode.INVALID_JSON),
        ("null", ErrorCode.INVALID_MESSAGE),
        ("[]", ErrorCode.INVALID_MESSAGE),
        ('"ping"', ErrorCode.INVALID_MESSAGE),
        ("{}", ErrorCode.INVALID_MESSAGE),
        ('{"type":null}', ErrorCode.INVALID_MESSAGE),
        ('{"type":["ping"]}', ErrorCode.INVALID_MESSAGE),
        ('{"type":"text","context_id":"c"}', ErrorCode.INVALID_MESSAGE),
        ('{"type":"text","text":"hello"}', ErrorCode.INVALID_MESSAGE),
        ('{"type":"Ping"}', ErrorCode.UNKNOWN_TYPE),
        ('{"type":"words"}', ErrorCode.UNKNOWN_TYPE),
        ('{"type":"text","context_id":"c","text":null}', ErrorCode.INVALID_PARAM),
        ('{"type":"text","context_id":"c","text":["a"]}', ErrorCode.INVALID_PARAM),
        ('{"type":"text","context_id":7,"text":"a"}', ErrorCode.INVALID_PARAM),
        ('{"type":"flush","context_id":"c","flush_id":-1}', ErrorCode.INVALID_PARAM),
        ('{"type":"flush","context_id":"c","flush_id":true}', ErrorCode.INVALID_PARAM),
        ('{"type":"flush","context_id":"c","flush_id":"1"}', ErrorCode.INVALID_PARAM),
        ('{"type":"flush","context_id":"c","flush_id":1.5}', ErrorCode.INVALID_PARAM),
        ('{"type":"flush","context_id":"c","flush_id":9007199254740992}', ErrorCode.INVALID_PARAM),
        ('{"type":"cancel","context_id":"c","played_ms":-1}', ErrorCode.INVALID_PARAM),
        ('{"type":"cut","context_id":"c","played_ms":null}', ErrorCode.INVALID_PARAM),
        (_open_with(context_id=""), ErrorCode.INVALID_PARAM),
        (_open_with(context_id="x" * 129), ErrorCode.INVALID_PARAM),
        (_open_with(context_id="a\x00b"), ErrorCode.INVALID_PARAM),
        (_open_with(context_id="a\nb"), ErrorCode.INVALID_PARAM),
        (_open_with(voice="\x00"), ErrorCode.INVALID_PARAM),
        (_open_with(audio={"sample_rate": 11_025}), ErrorCode.INVALID_PARAM),
        (_open_with(audio={"sample_rate": "24000"}), ErrorCode.INVALID_PARAM),
        (_open_with(audio={"encoding": "mp3"}), ErrorCode.INVALID_PARAM),
        (_open_with(audio=None), ErrorCode.INVALID_PARAM),
        (_open_with(timestamps="words"), ErrorCode.INVALID_PARAM),
        (_open_with(timestamps="char"), ErrorCode.INVALID_PARAM),
        (_open_with(max_buffer_delay_ms=3_001), ErrorCode.INVALID_PARAM),
        (_open_with(speed=0.24), ErrorCode.INVALID_PARAM),
        (_open_with(speed=True), ErrorCode.INVALID_PARAM),
        (_open_with(speed=float("nan")), ErrorCode.INVALID_PARAM),
        (_open_with(max_lead_s=float("inf")), ErrorCode.INVALID_PARAM),
        (_open_with(max_lead_s=-1), ErrorCode.INVALID_PARAM),
        (_open_with(max_buffer_delay_ms=-1), ErrorCode.INVALID_PARAM),
        (_open_with(voice=1), ErrorCode.INVALID_PARAM),
        (_open_with(seed=-1), ErrorCode.INVALID_PARAM),
        (_open_with(metadata={"a": "x" * 1_024}), ErrorCode.INVALID_PARAM),
        (_open_with(metadata=[1]), ErrorCode.INVALID_PARAM),
        (_open_with(metadata={"a": [math.nan]}), ErrorCode.INVALID_PARAM),
        (_open_with(metadata={"a": {"b": -math.inf}}), ErrorCode.INVALID_PARAM),
    ],
)
def test_bad_input_has_a_code(data: str, code: ErrorCode) -> None:
    assert _refusal(data).code is code


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
TYPES = [
    get_args(kind.model_fields["type"].annotation)[0] for kind in get_args(messages.ClientMessage)
]
FIELDS = sorted({name for kind in get_args(messages.ClientMessage) for name in kind.model_fields})


@given(st.sampled_from(TYPES), st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=6))
def test_no_field_escapes(kind: str, fields: dict[str, Any]) -> None:
    """Any value in any field is taken or refused, and what is taken survives its encoding."""
    try:
        message = parse_client_message(json.dumps({**fields, "type": kind}))
    except RefusedMessageError:
        return
    assert parse_client_message(message.encode()) == message


def test_a_refusal_says_what_was_expected_and_what_came() -> None:
    error = _refusal(_open_with(audio={"sample_rate": 11_025}))
    assert str(error) == (
        "context.open.audio.sample_rate: "
        "Input should be 8000, 16000, 22050, 24000, 32000, 44100 or 48000; got 11025"
    )


@pytest.mark.parametrize(
    "data",
    [
        json.dumps({"type": "text", "context_id": ["c"], "text": _SECRET}),
        json.dumps({"type": "text", "context_id": "c", "text": {"content": _SECRET}}),
        json.dumps({"type": "text", "context_id": "c", "text": [_SECRET]}),
        json.dumps({"type": "text", "context_id": "c", "text": _SECRET})[:-1],
        json.dumps({"type": "text", "text": _SECRET}),
        json.dumps({"type": "text", "context_id": f"\n{_SECRET}", "text": _SECRET}),
        _open_with(instruct=_SECRET * 1_000),
        _open_with(metadata={"note": _SECRET * 1_000}),
    ],
)
def test_a_refusal_never_shows_text(data: str) -> None:
    """Neither the error nor what it was raised from contains what should have been spoken."""
    error = _refusal(data)
    assert _SECRET not in str(error)
    assert error.__cause__ is None and error.__suppress_context__


def test_a_validation_error_hides_its_input() -> None:
    """Even pydantic's own error, where it is logged, does not show the text."""
    with pytest.raises(ValidationError) as caught:
        ContextText.model_validate({"context_id": 5, "text": _SECRET})
    assert _SECRET not in str(caught.value)


def test_unknown_fields_are_ignored() -> None:
    """A newer client's fields do not disturb, at any depth."""
    data = _open_with(audio={"sample_rate": 8000, "bits": 12}, mood="happy")
    message = parse_client_message(data)
    assert message == ContextOpen(context_id="c", audio=AudioFormat(sample_rate=8000))


U16, U32, U64 = (st.integers(0, 2**bits - 1) for bits in (16, 32, 64))
PCM = st.binary(max_size=MAX_MESSAGE_PCM_BYTES)


def test_instructions_is_another_name_of_instruct() -> None:
    """`instructions`, as OpenAI calls it, is accepted and means `instruct`."""
    message = parse_client_message(_open_with(instructions="calm"))
    assert isinstance(message, ContextOpen)
    assert message.instruct == "calm"


@given(st.builds(AudioMessage, U16, U32, U64, PCM))
def test_audio_survives_its_encoding(message: AudioMessage) -> None:
    """Decoding what was encoded gives the same message, in both transports."""
    assert parse_audio(message.encode()) == message
    text = AudioBase64Message.of("c", message).encode()
    decoded = parse_server_message(text)
    assert isinstance(decoded, AudioBase64Message)
    assert parse_base64_audio(decoded) == message.pcm


@pytest.mark.parametrize("data", [b"", b"\x01" * 15, b"\x02" + bytes(15), bytes(16 + 4_097)])
def test_broken_audio_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse_audio(data)


WORDS = st.lists(
    st.builds(
        WordTimestamp,
        st.builds(Word, st.text(), st.integers(0, 10**6), st.integers(0, 10**6)),
        st.integers(0, 10**6).map(lambda ms: ms * 24),
        st.none() | st.integers(0, 10**6).map(lambda ms: ms * 24),
        st.booleans(),
    )
)


@given(WORDS)
def test_words_survive_the_wire(words: list[WordTimestamp]) -> None:
    """Words at whole milliseconds arrive as they were sent, ends that are unknown included."""
    message = parse_server_message(WordsMessage.of(words, context_id="c").encode())
    assert isinstance(message, WordsMessage)
    assert timestamps_of(message) == words


def test_words_without_confidence_are_as_sure_as_exact() -> None:
    """Servers of version 1.0 send `exact` alone."""
    sent = WordList.of([word_with(1.0), word_with(0.5)]).model_dump(exclude={"confidence"})
    assert [word.confidence for word in timestamps_of(WordList.model_validate(sent))] == [1.0, 0.0]


@pytest.mark.parametrize("confidence", [0.0, 0.3, 0.9499999, EXACT_CONFIDENCE, 0.9876, 1.0])
def test_both_ends_call_the_same_words_exact(confidence: float) -> None:
    """Confidence is rounded down on the wire, to a thousandth."""
    word = word_with(confidence)
    sent = WordList.of([word])
    (received,) = timestamps_of(sent)
    assert 0 <= word.confidence - received.confidence <= 0.001
    assert sent.exact == [word.is_exact] == [received.is_exact]


@pytest.mark.parametrize("confidence", [[1.01], [-0.1], ["1"], [True], None])
def test_confidence_is_a_probability(confidence: object) -> None:
    fields = WordList.of([word_with(1.0)]).model_dump()
    with pytest.raises(ValidationError):
        WordList.model_validate({**fields, "confidence": confidence})


def word_with(confidence: float) -> WordTimestamp:
    return WordTimestamp(Word("a", 0, 1), 0, None, confidence)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.FORBIDDEN, UnauthorizedError),
        (ErrorCode.OVERLOADED, OverloadedError),
        (ErrorCode.ENGINE_ERROR, EngineError),
        (ErrorCode.INVALID_VOICE, InvalidRequestError),
    ],
)
def test_errors_survive_the_wire(code: ErrorCode, kind: type) -> None:
    """The client raises the class, code and waiting time that the server had."""
    sent = kind("a sentence", code=code, retry_after_ms=250)
    got = error_of(ErrorMessage.of(sent, "c"))
    assert type(got) is kind
    assert (got.code, got.message, got.retry_after_ms) == (code, "a sentence", 250)
    assert got.is_retryable == sent.is_retryable


@pytest.mark.parametrize("retryable", [True, False])
def test_a_newer_servers_code_still_says_whether_to_retry(retryable: bool) -> None:
    """A code that this client does not know becomes an error that can be retried, or cannot."""
    message = ErrorMessage(code="sunspots", message="m", retryable=retryable, status=503)
    error = error_of(message)
    assert error.is_retryable is retryable
    assert "sunspots" in error.message
