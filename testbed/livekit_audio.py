"""Check what the LiveKit plugin returns: audio frames and word times."""

import re
from collections.abc import Callable

from livekit.agents import tts, utils
from livekit.agents.types import NotGivenOr

from voiceagent_tts.adapters.livekit import TTS
from voiceagent_tts.core import SAMPLE_RATE_HZ

MakeVoice = Callable[..., TTS]


def seconds(time: NotGivenOr[float]) -> float:
    assert utils.is_given(time)
    return time


def tokens(text: str) -> list[str]:
    """Split `text` into tokens as a language model streams it."""
    return re.findall(r"\s?\S{1,4}|\s", text)


def check_frames(events: list[tts.SynthesizedAudio]) -> None:
    """Check for one request, one segment, reasonable frame lengths, and a final last frame."""
    assert {event.request_id for event in events} == {events[0].request_id} != {""}
    assert len({event.segment_id for event in events}) == 1
    assert [event.is_final for event in events] == [False] * (len(events) - 1) + [True]
    assert all(0 < event.frame.duration < 0.25 for event in events)
    assert {event.frame.sample_rate for event in events} == {SAMPLE_RATE_HZ}
    assert {event.frame.num_channels for event in events} == {1}
    assert not bytes(events[0].frame.data).startswith((b"RIFF", b"OggS", b"ID3"))
