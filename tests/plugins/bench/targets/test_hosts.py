"""Services and plugins of both hosts, measured by import path."""

import json

import pytest

from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.bench.callers import Callers, Section
from voiceagent_tts.plugins.bench.loads import Load, Style
from voiceagent_tts.plugins.bench.measures import values_of
from voiceagent_tts.plugins.bench.targets.addresses import TargetAddress
from voiceagent_tts.plugins.bench.targets.target import Options
from voiceagent_tts.plugins.bench.texts import Text
from voiceagent_tts.server.serve import RunningServer

TEXTS = [Text("en", "short", "One two three four. Five six seven eight.")]
PIPECAT = "pipecat:voiceagent_tts.adapters.pipecat.VoiceAgentTTSService"
LIVEKIT = "livekit:voiceagent_tts.adapters.livekit.TTS"


@pytest.mark.alone  # the lag of words is that of this machine, too
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # raised when Pipecat is imported
@pytest.mark.parametrize("address", [PIPECAT, LIVEKIT])
@pytest.mark.parametrize("barge_ins", [0.0, 1.0])
async def test_an_adapter_is_measured_in_its_host(
    server: RunningServer, address: str, barge_ins: float
) -> None:
    """Turn after turn on one connection, to the end or interrupted."""
    arguments = json.dumps({"url": server.websocket_url})
    callers = Callers(TargetAddress.parse(address + arguments, Options()).open())
    try:
        style = Style(TEXTS, has_tokens=True, barge_ins=barge_ins)
        traffic = await callers.run(Section(Load(together=2), 0.3), style)
    finally:
        await callers.aclose()
    assert {each.failure for each in traffic.utterances} == {None}
    values = values_of(traffic.utterances)
    assert all(first > 0 for first in values["audible_ms"])
    if not barge_ins:
        assert all(2 < each.audio_s < 6 for each in traffic.utterances)
    if address is LIVEKIT:
        assert max(values["word_lag_ms"]) < 500


@pytest.mark.parametrize(
    "address",
    [
        "pipecat:nothing.Here", "livekit:os.path", "livekit:", "pipecat:NoModule",
        'livekit:voiceagent_tts.adapters.livekit.TTS{"nonsense": 1}',
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_a_class_that_cannot_be_used_is_refused(address: str) -> None:
    """One sentence says what was expected."""
    with pytest.raises(InvalidRequestError, match="target: "):
        await TargetAddress.parse(address, Options()).open().connect()
