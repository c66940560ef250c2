"""What LiveKit's plugins give: their factory, and their frames and times, checked."""

import re
from collections.abc import Callable

from livekit.agents import tts, utils
from livekit.agents.types import NotGivenOr

from voiceagent_tts.adapters.livekit import TTS
from voiceagent_tts.core import SAMPLE_RATE_HZ

MakeVoice = Callable[..., TTS]


def seconds(time: NotGivenOr[float]) -> float:
    """A time that must have been given."""
    assert utils.is_given(time)
    return time


def tokens(text: str) -> list[str]:
    """`text` as a language model writes it."""
    return re.findall(r"\s?\S{1,4}|\s", text)


def check_frames(events: list[tts.SynthesizedAudio]) -> None:
    """One request, one segment, frames of a sensible length, the last of them final."""
    assert {event.request_id for event in events} == {events[0].request_id} != {""}
    assert len({event.segment_id for event in events}) == 1
    assert [event.is_final for event in events] == [False] * (len(events) - 1) + [True]
    assert all(0 < event.frame.duration < 0.25 for event in events)
    assert {event.frame.sample_rate for event in events} == {SAMPLE_RATE_HZ}
    assert {event.frame.num_channels for event in events} == {1}
    assert not bytes(events[0].frame.data).startswith((b"RIFF", b"OggS", b"ID3"))
