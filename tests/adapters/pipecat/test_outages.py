"""Outages on a scripted clock: what is spoken after them, and what the log says."""

import asyncio
from typing import cast

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
from voiceagent_tts.adapters.pipecat import VoiceAgentTTSService
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.plugins.demo.pipeline import running

TEXT = "a b c d e f"
HALF = Step(0.0, samples=SAMPLE_RATE_HZ, words_ms=(0, 300, 600))
BROKEN_OFF, REST = Script((HALF,), end_s=600.0), Script((HALF,), end_s=0.1)


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
            stages = [VoiceAgentTTSService(url=url), loudspeaker, history]
            worker = PipelineWorker(
                Pipeline(stages),
                clock=LoopClock(),
                cancel_on_idle_timeout=False,
                enable_rtvi=False,
            )
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
