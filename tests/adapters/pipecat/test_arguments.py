"""Arguments and settings of Pipecat's classes: the service honours each, or refuses it."""

import asyncio
import inspect
from typing import Any

import pytest
from pipecat.frames.frames import LLMFullResponseEndFrame, LLMFullResponseStartFrame, LLMTextFrame
from pipecat.processors.metrics.frame_processor_metrics import FrameProcessorMetrics
from pipecat.services.tts_service import TextAggregationMode, TTSService

from testbed.scripted_pipecat import Loudspeaker, agent, cut, reply
from testbed.scripted_server import Script, Step
from testbed.scripted_time import run_scripted
from voiceagent_tts.adapters.pipecat import VoiceAgentTTSService
from voiceagent_tts.core import SAMPLE_RATE_HZ

HONOURED: dict[str, Any] = {
    "aggregate_sentences": False,
    "append_trailing_space": True,
    "enable_direct_mode": True,
    "metrics": FrameProcessorMetrics(),
    "name": "voice",
    "pause_watchdog_timeout_s": 1.0,  # Pipecat ignores it
    "sample_rate": 16_000,
    "settings": VoiceAgentTTSService.Settings(voice="nova"),
    "skip_aggregator_types": ["code"],
    "skip_text_types": ["code"],
    "task_manager": None,  # a pipeline sets it
    "text_aggregation_mode": TextAggregationMode.TOKEN,
    "text_filters": [],
    "text_transforms": [],
    "transport_destination": "phone",
}
"""Arguments of Pipecat's classes that a user may choose."""

REFUSED: dict[str, Any] = {
    "max_consecutive_zero_audio_contexts": 1,  # a turn that fails reports its own error
    "pause_frame_processing": True,
    "push_silence_after_stop": True,  # no context that is played has it
    "push_start_frame": False,
    "push_stop_frames": True,
    "push_text_frames": True,
    "reuse_context_id_within_turn": False,  # a turn is one context
    "silence_time_s": 1.0,
    "stop_frame_timeout_s": 1.0,  # or a turn would end while it is resumed
}
"""Those on which the order of the service's frames, or the end of its turns, depends."""

ONE_WORD = Script((Step(0.0, samples=SAMPLE_RATE_HZ, words_ms=(0,)),), end_s=1.0)


def test_each_argument_of_pipecat_is_in_one_of_the_tables() -> None:
    """One that Pipecat adds is refused until it is."""
    constructors = [vars(each).get("__init__") for each in TTSService.__mro__[:-1]]
    parameters = [
        each for some in filter(None, constructors) for each in inspect.signature(some).parameters
    ]
    assert HONOURED.keys() | REFUSED.keys() == {*parameters} - {"self", "kwargs"}


@pytest.mark.parametrize("name", HONOURED)
def test_an_argument_that_is_honoured_is_accepted(name: str) -> None:
    """Wherever it is given."""
    VoiceAgentTTSService(**{name: HONOURED[name]})


@pytest.mark.parametrize("name", REFUSED)
def test_an_argument_that_cannot_be_honoured_is_refused(name: str) -> None:
    """At construction: replies would be broken, and nobody would know why."""
    with pytest.raises(TypeError, match=f"VoiceAgentTTSService sets `{name}` itself"):
        VoiceAgentTTSService(**{name: REFUSED[name]})


@pytest.mark.parametrize("mode", list(TextAggregationMode))
def test_a_trailing_space_divides_no_word(mode: TextAggregationMode) -> None:
    """The pieces of a reply have its own white space."""

    async def run() -> tuple[str, list[str]]:
        options = {"append_trailing_space": True, "text_aggregation_mode": mode}
        async with agent(ONE_WORD, Loudspeaker(40), **options) as talk:
            sent: list[str] = []

            @talk.service.event_handler("on_tts_request")
            async def on_tts_request(_: object, context_id: str, text: str) -> None:
                sent.append(text)

            tokens = [LLMTextFrame(each) for each in ("Tues", "day")]
            await talk.say([LLMFullResponseStartFrame(), *tokens, LLMFullResponseEndFrame()])
            await asyncio.sleep(3.0)
            return "".join(sent), talk.messages

    assert run_scripted(run()) == ("Tuesday", ["Tuesday"])


def test_in_direct_mode_the_history_ends_with_what_was_heard() -> None:
    """Frames are then processed where they are pushed."""
    steps = [Step(0.0, samples=SAMPLE_RATE_HZ, words_ms=(0, 300, 600, 900))]
    spoken = Script(tuple(steps), end_s=1.0)
    messages, _ = cut(reply("a b c d"), spoken, 0.5, enable_direct_mode=True)
    assert messages == ["a b"]
