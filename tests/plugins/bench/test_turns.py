from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from testbed.waiting import undisturbed
from voiceagent_tts.client import AudioFormat, ClientAudio, TTSClient
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.bench import livekit_turns, pipecat_turns
from voiceagent_tts.plugins.bench.compare import differences
from voiceagent_tts.plugins.bench.document import SCHEMA, read_document, write_document
from voiceagent_tts.plugins.bench.run import Outputs
from voiceagent_tts.plugins.bench.stage_clock import STAGES, Stage, StageClock, TurnLatency
from voiceagent_tts.plugins.bench.targets.classes import ServiceClass
from voiceagent_tts.plugins.bench.turn_report import section_of
from voiceagent_tts.plugins.bench.turn_script import Question, Services, TurnEvents
from voiceagent_tts.plugins.bench.turns import TurnPlan, run_turns, service_class
from voiceagent_tts.server.serve import RunningServer

PIPECAT = "voiceagent_tts.adapters.pipecat.VoiceAgentTTSService"
LIVEKIT = "voiceagent_tts.adapters.livekit.TTS"
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
    for text in ('a.B{"x": 1}', 'livekit:a.B{"x": 1}'):
        assert service_class(text, "livekit") == expected
    assert service_class(None, "pipecat") is None
    with pytest.raises(InvalidRequestError, match="Pipecat"):
        service_class("livekit:a.B", "pipecat")


@pytest.mark.parametrize(
    ("hosts", "tts", "said"),
    [([], None, "none"), (["x"], None, "x"), (["pipecat", "livekit"], "a.B", "one --host")],
)
def test_hosts_are_known_and_their_classes_belong_to_one(
    hosts: list[str], tts: str | None, said: str, tmp_path: Path
) -> None:
    """A plan that cannot be run is refused before a server is started."""
    with pytest.raises(InvalidRequestError, match=said):
        run_turns(TurnPlan(hosts, tts, None, None, 1), Outputs(tmp_path))


def test_a_transcript_may_be_complete_before_the_end_of_speech_is_reported() -> None:
    """Its stage takes no time then; a pause within the question ends no stage."""
    clock = StageClock()
    events = TurnEvents(clock)
    events.start_turn(10.0)
    events.speech_ended(9.5)
    events.transcribed(10.125)
    events.speech_ended(10.25)
    events.token_written(10.5)
    events.token_written(10.625)
    events.heard(11.0)
    (turn,) = clock.turns
    assert list(turn.stages.values()) == [0.25, 0.0, 0.25, 0.5]


async def _asked(server: RunningServer) -> Question:
    audio = AudioFormat(sample_rate=16_000)
    async with TTSClient(server.websocket_url) as client:
        events = client.say("Is it open now?", voice="nova", audio=audio, max_lead_s=0)
        pcm = b"".join([event.pcm async for event in events if isinstance(event, ClientAudio)])
    return Question("Is it open?", pcm, "Yes, it is.")


@pytest.mark.realtime
@pytest.mark.parametrize(
    "host",
    [
        pytest.param(pipecat_turns, id="pipecat", marks=pytest.mark.thorough),
        pytest.param(livekit_turns, id="livekit"),
    ],
)
async def test_the_stages_of_a_turn_are_measured_in_a_host(
    host: ModuleType, server: RunningServer
) -> None:
    """Each stage takes its time; voice activity detection waits for silence, the stand-in not."""
    path = {pipecat_turns: PIPECAT, livekit_turns: LIVEKIT}[host]
    tts = ServiceClass(path, {"url": server.websocket_url, "language": "en"})
    question = await _asked(server)

    async def measure() -> TurnLatency:
        (turn,) = (await host.measure_turns(Services(tts), [question])).turns
        return turn

    turn = await undisturbed(measure)
    assert turn.stages.keys() == set(STAGES)
    assert turn.stages[Stage.VAD] > 0.05
    assert 0 <= turn.stages[Stage.STT] < turn.stages[Stage.VAD]
    assert turn.stages[Stage.TTS] > 0
    assert turn.total_s == pytest.approx(sum(turn.stages.values()))


def test_the_document_has_every_host(tmp_path: Path) -> None:
    """Their stages stand side by side; other readers refuse such a document."""
    clock = StageClock()
    for late_s in (0.0, 0.2):
        clock.start_turn(0.0)
        for stage, at_s in zip(STAGES, (0.25, 0.25, 0.5, 0.75 + late_s), strict=True):
            clock.end_stage(stage, at_s)
    document = {
        "schema": SCHEMA, "kind": "turn", "machine": "2 x <CPU>", "versions": {"a": "1"},
        "commit": "abc", "command": "voiceagent-tts bench turn", "load_1_min": 0.5, "seed": 0,
        "started_at": "2026-11-23T08:00:00+00:00",
        "sections": [section_of(host, clock) for host in ("Pipecat", "LiveKit")],
    }  # fmt: skip
    write_document(document, tmp_path / "turn.json")
    assert read_document(tmp_path / "turn.json") == document
    assert document["sections"][0]["values"]["total_ms"] == [750.0, 950.0]
    with pytest.raises(InvalidRequestError, match="bench latency"):
        read_document(tmp_path / "turn.json", kind="latency")
    # Two turns are too few for any other verdict.
    assert {each.verdict for each in differences(document, document)} == {"equal"}
