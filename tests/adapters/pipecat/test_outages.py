"""Outages on a scripted clock: what is spoken after them, and what the log says."""

import asyncio
import time
from typing import cast
from unittest import mock

import pytest
from loguru import logger
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair

from testbed.proxy import routing
from testbed.scripted_pipecat import LoopClock, Loudspeaker, reply
from testbed.scripted_server import Script, ScriptedServer, Step
from testbed.scripted_time import run_scripted
from testbed.understudy import switching
from voiceagent_tts.adapters.pipecat import VoiceAgentTTSService
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.plugins.demo.pipeline import running

TEXT = "a b c d e f"
HALF = Step(0.0, samples=SAMPLE_RATE_HZ, words_ms=(0, 300, 600))
BROKEN_OFF, REST = Script((HALF,), end_s=600.0), Script((HALF,), end_s=0.1)

FAILOVER_S = 1.0
"""Silence after which another service takes over."""
ATTEMPT_S = 0.25
"""Time between two attempts to connect."""


def speak_through_an_outage(outage_s: float) -> tuple[list[str], list[str]]:
    """The history of a reply whose line is down in its middle, and the lines of the log.

    Default options: half of the words arrive before the outage.
    """

    async def run() -> list[str]:
        context, loudspeaker = LLMContext(), Loudspeaker(40)
        history = LLMContextAggregatorPair(context).assistant()
        async with (
            ScriptedServer(REST, [BROKEN_OFF]).running() as server,
            routing(server.addresses["ws"]) as (line, url),
        ):
            pipeline = Pipeline([VoiceAgentTTSService(url=url), loudspeaker, history])
            options = {"clock": LoopClock(), "cancel_on_idle_timeout": False, "enable_rtvi": False}
            worker = PipelineWorker(pipeline, **options)
            async with running(worker):
                for frame in reply(TEXT):
                    await worker.queue_frame(frame)
                await loudspeaker.begun()
                await asyncio.sleep(0.5)
                line.go_down()
                await asyncio.sleep(outage_s)
                line.come_up()
                await asyncio.sleep(15.0)
        return [each["content"] for each in cast("list[dict[str, str]]", context.messages)]

    lines: list[str] = []
    sink = logger.add(lines.append, level="INFO", format="{message}")
    try:
        return run_scripted(run()), lines
    finally:
        logger.remove(sink)


@pytest.mark.parametrize("outage_s", [4.5, 6.0])
def test_a_reply_goes_on_after_an_outage_in_its_middle(outage_s: float) -> None:
    """Each word is committed once, for as long as the server may be silent."""
    messages, _ = speak_through_an_outage(outage_s)
    assert messages == [TEXT]


def test_an_outage_writes_few_lines() -> None:
    """Attempts become rare, and so do their lines."""
    _, short = speak_through_an_outage(6.0)
    _, long = speak_through_an_outage(50.0)
    assert len(short) <= len(long) <= 40, long


def failover_after_s(script: Script, down_after_s: float | None = None) -> float:
    """When another service takes over, in seconds from the start of a turn.

    Args:
        script: what the server sends.
        down_after_s: how long it is reached, from the first chunk that plays; None for always,
            0.0 for never.
    """

    async def run() -> float:
        loop, loudspeaker = asyncio.get_running_loop(), Loudspeaker(40)
        async with (
            ScriptedServer(script).running() as server,
            routing(server.addresses["ws"]) as (line, url),
        ):
            if down_after_s == 0.0:
                line.go_down()
            first = VoiceAgentTTSService(url=url)
            with mock.patch.object(time, "monotonic", loop.time):
                began_at_s = loop.time()
                async with switching(first, loudspeaker, clock=LoopClock()) as both:
                    await both.worker.queue_frames(reply(TEXT))
                    if down_after_s:
                        await loudspeaker.begun()
                        began_at_s = loop.time()
                        await asyncio.sleep(down_after_s)
                        line.go_down()
                    return await both.switched_at_s - began_at_s

    return run_scripted(run())


@pytest.mark.parametrize(
    ("down_after_s", "heard_s"),
    [pytest.param(0.0, 0.0, id="from the start"), pytest.param(0.3, 1.0, id="within a reply")],
)
def test_another_service_takes_over_after_a_second_of_silence(
    down_after_s: float, heard_s: float
) -> None:
    """Behind the audio that the listener still has; by the next attempt to connect."""
    silent_s = failover_after_s(BROKEN_OFF, down_after_s) - heard_s
    assert FAILOVER_S <= silent_s <= FAILOVER_S + 2 * ATTEMPT_S


def test_another_service_takes_over_at_once_where_no_attempt_would_help() -> None:
    """For a voice that the server does not have."""
    unknown = InvalidRequestError("there is no such voice", code=ErrorCode.INVALID_VOICE)
    assert failover_after_s(Script((), end_s=0.0, failure=unknown)) < ATTEMPT_S
