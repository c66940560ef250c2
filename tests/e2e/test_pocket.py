"""Pocket TTS behind the real server, over the real wire: its weights are random."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from testbed.pocket import SMALL_MODEL, PocketHome
from testbed.waiting import until
from voiceagent_tts.client import TTSClient
from voiceagent_tts.config import Settings
from voiceagent_tts.core import BYTES_PER_SAMPLE, FRAME_SAMPLES, WordTimestamp
from voiceagent_tts.errors import ErrorCode, InvalidRequestError, VoiceAgentError
from voiceagent_tts.protocol.client_connection import ClientAudio
from voiceagent_tts.server.serve import RunningServer, running
from voiceagent_tts.text.words import split_words

TEXT = "Tomorrow will be sunny in the morning, with some clouds after noon."
SOUND = Path(__file__).parents[1] / "reference" / "reference.wav"

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    """A server of the small model, which speaks 0.4 s a word; it probes once, at the start."""
    folder = tmp_path_factory.mktemp("pocket")
    PocketHome(folder, is_short=False).store()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HOME", str(folder))  # for the worker
        patch.setenv("HF_HUB_OFFLINE", "1")
        settings = Settings(
            port=0,
            engine="pocket",
            models=(SMALL_MODEL,),
            rows=3,
            voices_folder=folder / "voices",
            watchdog_s=3600.0,
        )
        async with running(settings) as started:
            yield started


@pytest_asyncio.fixture(loop_scope="module")
async def client(server: RunningServer) -> AsyncIterator[TTSClient]:
    """A client of that server; all rows are free before and after the test."""
    await until(lambda: rows_used(server) == 0, "the start-up probe has gone")
    async with TTSClient(server.websocket_url) as connected:
        yield connected
    await until(lambda: rows_used(server) == 0, "every row is free")


def rows_used(server: RunningServer) -> int:
    """Rows in use."""
    (supervisor,) = server.state.synthesizer.supervisors.values()
    assert supervisor.worker is not None
    return supervisor.worker.rows_used


async def test_every_word_comes_once_with_a_time(client: TTSClient) -> None:
    """The aligner's words are the text's, in order, within the audio."""
    audio, words = 0, list[WordTimestamp]()
    async for event in client.say(TEXT, voice="marius", language="en", max_lead_s=0):
        if isinstance(event, ClientAudio):
            audio += len(event.pcm) // BYTES_PER_SAMPLE
        elif isinstance(event, WordTimestamp):
            words.append(event)
    assert [word.word for word in words] == split_words(TEXT)
    starts = [word.start_sample for word in words]
    assert starts == sorted(starts) and starts[-1] <= audio
    assert audio % FRAME_SAMPLES == 0


async def test_an_interruption_splits_the_text_and_frees_the_row(
    client: TTSClient, server: RunningServer
) -> None:
    """The cut is verbatim, and the next context needs no other row."""
    context = await client.open(language="en", max_lead_s=0.2)
    async with context:
        await context.send_text(TEXT * 3)
        await context.end()
        async for event in context:
            if isinstance(event, ClientAudio):
                break
        cut = await context.cancel(played_ms=50)
    assert cut.text_spoken + cut.text_remaining == TEXT * 3
    assert cut.text_remaining
    await until(lambda: rows_used(server) == 0, "the row is free")


async def test_two_contexts_speak_at_the_same_time(client: TTSClient) -> None:
    """Both have audio before one of them ends."""
    both = asyncio.Barrier(2)

    async def listen(voice: str) -> None:
        async with aclosing(client.say(TEXT, voice=voice, language="en", max_lead_s=0)) as events:
            async for event in events:
                if isinstance(event, ClientAudio):
                    await both.wait()
                    return
        raise AssertionError(f"{voice} ended before the other began")

    await asyncio.gather(listen("alba"), listen("marius"))


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"voice": "nobody"}, ErrorCode.INVALID_VOICE),
        ({"language": "fr"}, ErrorCode.INVALID_LANGUAGE),
        ({"language": "klingon"}, ErrorCode.INVALID_LANGUAGE),
        ({"text_feeding": "token"}, ErrorCode.INVALID_PARAM),
    ],
)
async def test_what_it_cannot_speak_is_refused(
    client: TTSClient, options: dict[str, str], code: ErrorCode
) -> None:
    """At `open`, with a stable code."""
    with pytest.raises(InvalidRequestError) as caught:
        _ = [event async for event in client.say("Hello.", **options)]  # type: ignore[arg-type]
    assert caught.value.code is code


async def test_a_voice_that_was_never_downloaded_is_said(client: TTSClient) -> None:
    """The catalogue has it, this machine has not, and there is no network."""
    with pytest.raises(VoiceAgentError, match="'george' .* is not on this machine") as caught:
        _ = [event async for event in client.say("Hello.", voice="george", language="en")]
    assert caught.value.code is ErrorCode.INVALID_VOICE


async def test_voices_are_listed_with_their_languages(server: RunningServer) -> None:
    """And it says that the server clones."""
    async with httpx.AsyncClient(base_url=server.url) as http:
        listed = (await http.get("/v1/audio/voices")).json()
    voices = {voice["id"]: voice for voice in listed["voices"]}
    assert listed["voices"][0]["id"] == "alba" and listed["can_clone"]
    assert (voices["lola"]["language"], voices["lola"]["gender"]) == ("es", "female")
    assert voices["alba"]["languages"] == ["en"]
    assert voices["nova"]["kind"] == "alias"


@pytest.mark.thorough
async def test_a_recording_becomes_a_voice_over_http(
    client: TTSClient, server: RunningServer
) -> None:
    """It is spoken, downloaded, stored again under another name, and removed."""
    async with httpx.AsyncClient(base_url=server.url, timeout=120) as http:
        fields = {"name": "Ann", "consent": "Ann agreed on 3 May 2026."}
        upload = {"audio_sample": ("a.wav", SOUND.read_bytes())}
        added = await http.post("/v1/audio/voices", data=fields, files=upload)
        assert added.status_code == 201, added.text
        events = [event async for event in client.say("Hi.", voice="ann", language="en")]
        assert any(isinstance(event, ClientAudio) for event in events)
        content = (await http.get("/v1/audio/voices/ann")).content
        fields["name"] = "Bo"
        stored = await http.post(
            "/v1/audio/voices", data=fields, files={"voice_file": ("b", content)}
        )
        assert stored.status_code == 201, stored.text
        refused = await http.post(
            "/v1/audio/voices", data=fields | {"name": "C"}, files={"voice_file": ("b", b"x")}
        )
        assert refused.json()["error"]["code"] == "invalid_voice"
        for name in ("ann", "bo"):
            assert (await http.delete(f"/v1/audio/voices/{name}")).status_code == 204
