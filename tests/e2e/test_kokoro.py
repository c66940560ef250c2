"""Kokoro and the embedded voice behind the real server, over the real wire."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from testbed.kokoro import FOLDER, kokoro_files
from testbed.missing import skipped_if_missing
from testbed.waiting import until
from voiceagent_tts.client import TTSClient
from voiceagent_tts.config import Settings
from voiceagent_tts.core import BYTES_PER_SAMPLE, WordTimestamp, ms_to_samples
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.kokoro.published import PUBLISHED
from voiceagent_tts.protocol.client_connection import ClientAudio
from voiceagent_tts.protocol.messages import WarningMessage
from voiceagent_tts.server.serve import RunningServer, running
from voiceagent_tts.text.words import split_words

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.kokoro,
    pytest.mark.xdist_group("kokoro"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[RunningServer]:
    """A server that probes its voice once, at the start."""
    with skipped_if_missing():
        kokoro_files()
    settings = Settings(
        port=0, engine="kokoro", models=(str(FOLDER),), rows=3, watchdog_s=3600.0, cache_mb=0
    )
    async with running(settings) as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def client(server: RunningServer) -> AsyncIterator[TTSClient]:
    """A client of that server; every row is free before and after the test."""
    await until(lambda: server.state.synthesizer.rows_used == 0, "the start-up probe has gone")
    async with TTSClient(server.websocket_url) as connected:
        yield connected
    await until(lambda: server.state.synthesizer.rows_used == 0, "every row is free")


async def test_every_word_comes_before_it_is_heard(client: TTSClient) -> None:
    """The words are the client's, also where many are said for one; their times are exact."""
    text = "Total: $4.20, now."
    words: list[WordTimestamp] = []
    samples = 0
    async for event in client.say(text, language="en", max_lead_s=0):
        if isinstance(event, ClientAudio):
            samples += len(event.pcm) // BYTES_PER_SAMPLE
        elif isinstance(event, WordTimestamp):
            assert event.start_sample + ms_to_samples(1) > samples  # the wire has milliseconds
            words.append(event)
    assert [word.word for word in words] == split_words(text)
    assert all(word.is_exact for word in words)
    assert words[-1].end_sample is not None and words[-1].end_sample <= samples


@pytest.mark.parametrize(
    ("text", "options", "voice"),
    [
        ("Hi.", {"language": "en"}, "af_heart"),
        ("Hi.", {"language": "en-GB", "voice": "onyx"}, "bm_george"),
        ("Hola.", {"language": "es"}, "ef_dora"),
        ("Buongiorno, come stai oggi?", {}, "if_sara"),
    ],
)
async def test_a_context_is_placed_by_its_voice_and_language(
    client: TTSClient, text: str, options: dict[str, str], voice: str
) -> None:
    """It sounds as with the voice of its language that it stands for, which is not named."""
    found, expected = [
        [event async for event in client.say(text, max_lead_s=0, **wanted)]  # type: ignore[arg-type]
        for wanted in (options, {"voice": voice})
    ]
    assert not [event for event in found if isinstance(event, WarningMessage)]
    assert pcm_of(found) == pcm_of(expected) != b""


def pcm_of(events: list) -> bytes:
    """The audio of a context."""
    return b"".join(event.pcm for event in events if isinstance(event, ClientAudio))


async def test_another_language_than_that_of_the_voice(client: TTSClient) -> None:
    """Named at `open`, it is refused; detected in the text, it is read, and the client is told."""
    with pytest.raises(InvalidRequestError, match="af_heart") as caught:
        _ = [event async for event in client.say("Oui.", voice="af_heart", language="fr")]
    assert caught.value.code is ErrorCode.INVALID_LANGUAGE
    events = [event async for event in client.say("Guten Tag, wie geht es?", voice="af_heart")]
    warnings = [event.code for event in events if isinstance(event, WarningMessage)]
    assert warnings == ["language_unavailable"]
    with pytest.raises(InvalidRequestError) as caught:
        _ = [event async for event in client.say("はい。", voice="jf_alpha")]
    assert caught.value.code is ErrorCode.INVALID_VOICE


async def test_the_list_says_what_each_voice_speaks(server: RunningServer) -> None:
    """A voice has the languages that it is made for, an alias those of all."""
    async with httpx.AsyncClient(base_url=server.url) as http:
        listed = (await http.get("/v1/audio/voices")).json()["voices"]
    languages = {voice["id"]: voice["languages"] for voice in listed}
    assert languages["ff_siwis"] == ["fr"] and languages["bf_emma"] == ["en", "en-gb"]
    assert {"en", "fr", "hi"} <= set(languages["nova"])


async def test_one_server_speaks_with_three_engines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each context goes to the first engine that speaks its language, or that has its voice."""
    with skipped_if_missing():
        files = kokoro_files()
    folder = tmp_path / "hub" / f"models--{PUBLISHED.repo.replace('/', '--')}" / "snapshots"
    stored = folder / (PUBLISHED.revision or "")
    names = {"onnx/model_quantized.onnx": files.model}
    names |= {f"voices/{file.name}": file for file in files.voices.glob("[bei]f_*.bin")}
    for name, file in names.items():
        (stored / name).parent.mkdir(parents=True, exist_ok=True)
        (stored / name).symlink_to(file)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    settings = Settings(port=0, engine="hibari", beside="kokoro", rows=3, watchdog_s=3600.0)
    async with running(settings) as server, TTSClient(server.websocket_url) as client:
        await until(lambda: server.state.synthesizer.rows_used == 0, "the start-up probe has gone")
        for engine, text, options in (
            ("hibari", "Hello there.", {}),
            ("kokoro", "Buenos días, ¿cómo está usted?", {}),
            ("kokoro", "Hello.", {"voice": "bf_emma"}),
            ("espeak", "Guten Tag, wie geht es Ihnen heute?", {}),
        ):
            worker = server.state.synthesizer.supervisors[engine].worker
            assert worker is not None
            before = worker.stats.audio_samples
            events = [event async for event in client.say(text, max_lead_s=0, **options)]
            assert not [event for event in events if isinstance(event, WarningMessage)], text
            await until(lambda: worker.stats.audio_samples > before, f"{engine} reports its audio")  # noqa: B023
