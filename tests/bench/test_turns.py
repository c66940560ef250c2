import numpy as np
import pytest

from voiceagent_tts.bench.pipecat_turns import Question, ServiceClass, Services, measure_turns
from voiceagent_tts.bench.stage_clock import STAGES, Stage
from voiceagent_tts.bench.turns import service_class
from voiceagent_tts.client import AudioFormat, ClientAudio, TTSClient
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.server.serve import RunningServer

OURS = "voiceagent_tts.adapters.pipecat.VoiceAgentTTSService"
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def test_speech_ends_with_its_last_audible_sample() -> None:
    """Silence and noise below 1 % of full scale after it do not count."""
    samples = np.zeros(16_000, "<i2")
    samples[4_000:8_000] = 9_000
    samples[8_000:] = 100
    assert Question("", samples.tobytes(), "").sound_s == 0.5


def test_a_service_has_a_path_and_arguments() -> None:
    """The host's name is optional, and another host is refused."""
    expected = ServiceClass("a.B", {"x": 1})
    assert service_class('a.B{"x": 1}') == service_class('pipecat:a.B{"x": 1}') == expected
    assert service_class(None) is None
    with pytest.raises(InvalidRequestError, match="Pipecat"):
        service_class("livekit:a.B")


@pytest.mark.realtime
async def test_the_stages_of_a_turn_are_measured_in_a_pipeline(server: RunningServer) -> None:
    """Each stage takes its time; voice activity detection waits for silence, the stand-in not."""
    audio = AudioFormat(sample_rate=16_000)
    async with TTSClient(server.websocket_url) as client:
        events = client.say("Is it open now?", voice="nova", audio=audio, max_lead_s=0)
        pcm = b"".join([event.pcm async for event in events if isinstance(event, ClientAudio)])
    tts = ServiceClass(OURS, {"url": server.websocket_url, "language": "en"})
    clock = await measure_turns(Services(tts), [Question("Is it open?", pcm, "Yes, it is.")])
    (turn,) = clock.turns
    assert turn.stages.keys() == set(STAGES)
    assert turn.stages[Stage.VAD] > 0.05
    assert 0 <= turn.stages[Stage.STT] < turn.stages[Stage.VAD]
    assert turn.total_s == pytest.approx(sum(turn.stages.values()))
