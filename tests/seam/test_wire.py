from dataclasses import fields
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceagent_tts.errors import EngineError
from voiceagent_tts.seam.aligner_messages import AlignCommand, AlignEvent
from voiceagent_tts.seam.commands import Append, Command
from voiceagent_tts.seam.events import Event
from voiceagent_tts.seam.wire import decode, encode

MESSAGES = get_args(Command | Event | AlignCommand | AlignEvent)


def any_of(kind: type) -> st.SearchStrategy[Any]:
    """Messages of a kind, with any value in each field, also in those that have a default."""
    return st.builds(kind, **{field.name: ... for field in fields(kind)})


@given(st.sampled_from(MESSAGES).flatmap(any_of))
def test_what_is_encoded_is_decoded(message: Any) -> None:
    """Every command and event is decoded to an equal one, whose values have the same types."""
    assert repr(decode(encode(message))) == repr(message)


def test_lone_surrogates_pass() -> None:
    """Text that is not valid Unicode reaches the engine, which decides what to do with it."""
    message = Append(1, "a\ud800b", 0, True, "en")
    assert decode(encode(message)) == message


@pytest.mark.parametrize("parts", [[b""], [b"{}"], [b'["nonsense"]'], [b'["audio",[[1,0]]]']])
def test_other_messages_are_refused(parts: list[bytes]) -> None:
    """A message of another version raises an error that says so."""
    with pytest.raises(EngineError, match="same installation"):
        decode(parts)
