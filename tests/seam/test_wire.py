from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceagent_tts.core import AudioChunk, Reading, WarningCode, Word, WordTimestamp
from voiceagent_tts.errors import EngineError, ErrorCode
from voiceagent_tts.seam.aligner_messages import Aligned, Expect, Finish, Follow
from voiceagent_tts.seam.commands import Append, Cancel, Credit, Prepare, SpeechOptions, Submit
from voiceagent_tts.seam.events import (
    AudioStep,
    Cancelled,
    Capabilities,
    ContextAudio,
    Done,
    Failed,
    Ready,
    SegmentEnd,
    Stats,
    VoiceDetails,
    Warned,
    Words,
)
from voiceagent_tts.seam.wire import decode, encode

_NUMBER = st.integers(0, 2**53)
_TEXT = st.text()  # hypothesis includes lone surrogates only where asked for
_PLAIN_WORD = st.builds(Word, _TEXT, _NUMBER, _NUMBER)
_WORD = st.builds(WordTimestamp, _PLAIN_WORD, _NUMBER, st.none() | _NUMBER, st.booleans())
_AUDIO = st.builds(ContextAudio, _NUMBER, st.builds(AudioChunk, _NUMBER, st.binary(max_size=64)))
_FEEDING = st.sampled_from(("token", "segment"))
_OPTIONS = st.builds(
    SpeechOptions,
    st.none() | _TEXT,
    st.floats(0.5, 2),
    st.none() | _NUMBER,
    st.none() | _NUMBER,
    st.booleans(),
    st.booleans(),
)
_READINGS = st.lists(
    st.builds(Reading, _NUMBER, _NUMBER, _TEXT, st.none() | _TEXT), max_size=3
).map(tuple)
_VERSION = st.lists(_NUMBER, max_size=3).map(tuple)
_MESSAGES = st.one_of(
    st.builds(
        Submit,
        _NUMBER,
        _TEXT,
        _NUMBER,
        st.booleans(),
        _TEXT,
        _TEXT,
        _FEEDING,
        _OPTIONS,
        _READINGS,
        st.none() | _TEXT,
        st.booleans(),
        _VERSION,
    ),
    st.builds(Append, _NUMBER, _TEXT, _NUMBER, st.booleans(), _TEXT, _READINGS),
    st.builds(Cancel, _NUMBER),
    st.builds(Prepare, _TEXT, st.none() | _TEXT, _FEEDING, _OPTIONS, _VERSION),
    st.builds(Credit, _NUMBER, st.floats(0, 1e9), _NUMBER),
    st.builds(AudioStep, st.lists(_AUDIO, max_size=4).map(tuple)),
    st.builds(Words, _NUMBER, st.lists(_WORD, max_size=4).map(tuple)),
    st.builds(SegmentEnd, _NUMBER, _NUMBER, _NUMBER),
    st.builds(Done, _NUMBER, _NUMBER),
    st.builds(Cancelled, _NUMBER),
    st.builds(Failed, st.none() | _NUMBER, st.sampled_from(ErrorCode), _TEXT),
    st.builds(
        Stats,
        _NUMBER,
        _NUMBER,
        st.floats(0, 1e9),
        st.dictionaries(_TEXT, st.floats(0, 1e9), max_size=4),
    ),
    st.builds(Follow, _NUMBER, _TEXT, _TEXT),
    st.builds(Expect, _NUMBER, st.lists(_PLAIN_WORD, max_size=4).map(tuple)),
    st.builds(Finish, _NUMBER),
    st.builds(
        Aligned,
        _NUMBER,
        st.lists(_WORD, max_size=4).map(tuple),
        st.lists(_WORD, max_size=4).map(tuple),
        _NUMBER,
    ),
)


@given(_MESSAGES)
def test_what_is_encoded_is_decoded(message: Any) -> None:
    """Every command and event is decoded to an equal one."""
    assert decode(encode(message)) == message


def test_capabilities_keep_their_types() -> None:
    """Lists of names are decoded as tuples, so that capabilities stay hashable and comparable."""
    ready = Ready(
        Capabilities(
            "espeak", "espeak-ng", True, ("segment",), ("en", "de"), ("a",), 4, True,
            voice_details=(VoiceDetails("a", "preset", None, "female"),),
        )
    )  # fmt: skip
    assert decode(encode(ready)) == ready


@pytest.mark.parametrize("code", WarningCode)
def test_a_warning_keeps_its_code(code: WarningCode) -> None:
    """Every code of a warning is decoded as the same member."""
    assert decode(encode(Warned(3, code, "a sentence"))) == Warned(3, code, "a sentence")


def test_lone_surrogates_pass() -> None:
    """Text that is not valid Unicode reaches the engine, which decides what to do with it."""
    message = Append(1, "a\ud800b", 0, True, "en")
    assert decode(encode(message)) == message


@pytest.mark.parametrize("parts", [[b""], [b"{}"], [b'["nonsense"]'], [b'["audio",[[1,0]]]']])
def test_other_messages_are_refused(parts: list[bytes]) -> None:
    """A message of another version raises an error that says so."""
    with pytest.raises(EngineError, match="same installation"):
        decode(parts)
