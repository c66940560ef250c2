"""When a LiveKit reply that broke off is tried again, on a scripted clock."""

import asyncio
import time
from itertools import pairwise
from unittest import mock

import pytest
from livekit.agents import APIConnectionError, APIConnectOptions, APIError
from livekit.agents.tts import AudioEmitter, SynthesizedAudio
from livekit.agents.utils import aio

from testbed.scripted_server import Script, ScriptedServer, Step
from testbed.scripted_time import run_scripted
from voiceagent_tts.adapters.livekit.reply import Reply, ReplyHooks, ReplyInput, ReplyOptions
from voiceagent_tts.client import ClientSocket
from voiceagent_tts.client.transport import connect_websocket
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.errors import EngineError

BREAKS_OFF = Script(
    (Step(0.0, samples=SAMPLE_RATE_HZ, words_ms=(0,)),), end_s=0.2, failure=EngineError("it died")
)
OPTIONS = ReplyOptions({}, SAMPLE_RATE_HZ, leading_silence_ms=0, output_latency_s=0.0)


async def attempts_at_s(retry_interval_s: float) -> list[float]:
    """When a reply connects: at its start, and after its server has gone for good."""
    loop, connected_at_s = asyncio.get_running_loop(), list[float]()
    policy = APIConnectOptions(max_retry=2, retry_interval=retry_interval_s)
    async with ScriptedServer(BREAKS_OFF).running() as server:
        socket = await ClientSocket.over(await connect_websocket(server.addresses["ws"], {}))

        async def connect() -> ClientSocket:
            connected_at_s.append(loop.time())
            if len(connected_at_s) > 1:
                raise APIConnectionError("no server")
            return socket

        emitter = AudioEmitter(label="test", dst_ch=aio.Chan[SynthesizedAudio]())
        hooks = ReplyHooks(connect)
        reply = Reply(OPTIONS, policy, emitter, hooks, in_segment=True, listener=None)
        reply.send("one two three")
        reply.send(ReplyInput.END)
        with mock.patch.object(time, "monotonic", loop.time), pytest.raises(APIError):
            await reply.speak()
        await socket.aclose()
    return connected_at_s


@pytest.mark.parametrize("retry_interval_s", [0.1, 0.7])
def test_attempts_are_as_far_apart_as_livekits_policy_says(retry_interval_s: float) -> None:
    """The first one follows at once; while a second of audio is left to hear, none counts."""
    start, first, *others = run_scripted(attempts_at_s(retry_interval_s))
    assert first == pytest.approx(start + 0.2, abs=0.02)
    gaps_s = [later - earlier for earlier, later in pairwise((first, *others))]
    assert gaps_s == pytest.approx([retry_interval_s] * len(gaps_s), abs=0.02)
    heard_s = start + 1.0
    after = [at for at in others if at > heard_s]
    assert len(after) == 3, "the first attempt that counts, and two retries"
