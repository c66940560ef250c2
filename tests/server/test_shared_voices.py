"""Two servers whose voices are in one bucket of a real S3 server."""

import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
import torch

from testbed.linked_models import link_with_short_runs
from testbed.s3_server import SECRET, S3Server, s3_server
from testbed.servers import metric_value
from testbed.waiting import until
from voiceagent_tts.config import Settings
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.model.prompt import Cloned
from voiceagent_tts.seam.cloner_messages import VoiceFile
from voiceagent_tts.server.clones import _save
from voiceagent_tts.server.serve import RunningServer, running
from voiceagent_tts.server.voice_records import VoiceRecord

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="module")]

BASE = str(Path(__file__).parents[1] / "reference" / "base-0b6")
VOICES = "/v1/audio/voices"
CONSENTS = "/v1/audio/voice_consents"
WIDTH = 64

Pair = tuple[RunningServer, RunningServer]


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    """An S3 server for all tests of the module."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    with pytest.MonkeyPatch.context() as patch, s3_server(port, patch) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def servers(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    """Two servers of a tiny Base model, each with its copies of the voices."""
    folder = tmp_path_factory.mktemp("models") / Path(BASE).name
    link_with_short_runs(Path(BASE), folder, frames=24)  # random weights run away from a short text
    one, two = (
        Settings(
            port=0,
            engine="qwen3",
            models=(str(folder),),
            threads=1,
            aligner="off",
            voices_folder=f"s3://{s3.bucket}/voices",
            voices_cache=tmp_path_factory.mktemp("copies"),
            voices_per_key=2,
        )
        for _ in range(2)
    )
    async with running(one) as first, running(two) as second:
        yield first, second


@pytest_asyncio.fixture(loop_scope="module")
async def clients(servers: Pair) -> AsyncIterator[tuple[httpx.AsyncClient, httpx.AsyncClient]]:
    """A client of each server; the voices are gone after each test."""
    one, two = (httpx.AsyncClient(base_url=each.url, timeout=120) for each in servers)
    async with one, two:
        yield one, two
    for name in servers[0].state.clones.names():
        servers[0].state.voice_records.remove_voice(name)


def voice(number: float) -> bytes:
    """A voice file of the model; another number is another voice."""
    return Cloned(torch.full((WIDTH,), number)).to_bytes()


async def speak(client: httpx.AsyncClient, name: str) -> httpx.Response:
    """The answer to a request to speak with a voice."""
    body = {"input": "Hello.", "voice": name, "response_format": "pcm"}
    return await client.post("/v1/audio/speech", json=body)


def left(copies: Path, *names: str) -> list[Path]:
    """Files of a server whose names contain one of these."""
    found = copies.rglob("*")
    return [each for each in found if any(name in each.name.casefold() for name in names)]


async def test_a_voice_is_added_replaced_and_withdrawn_on_all_servers(
    servers: Pair, clients: tuple[httpx.AsyncClient, httpx.AsyncClient], s3: S3Server
) -> None:
    """One server stores it, the other one speaks it; its withdrawal there deletes all of it."""
    (first, second), (one, two) = servers, clients
    attested = {"name": "Anna", "language": "en", "attest": "Anna signed on 3 May 2026."}
    consent_id = (await one.post(CONSENTS, data=attested)).json()["id"]
    fields = {"name": "Anna", "consent_id": consent_id}
    added = await one.post(VOICES, data=fields, files={"voice_file": voice(0.0)})
    assert added.status_code == 201, added.text
    assert any((await speak(one, "anna")).content)
    await until(lambda: "anna" in second.state.voice_records.voices(), "the second server has it")
    assert any((await speak(two, "anna")).content)
    replaced = await one.post(
        VOICES, data=fields | {"replace": "true"}, files={"voice_file": voice(0.5)}
    )
    assert replaced.status_code == 201, replaced.text
    assert first.state.clones.read("anna") == voice(0.5)
    await until(lambda: second.state.clones.read("anna") == voice(0.5), "it is replaced")
    assert any((await speak(two, "anna")).content)
    withdrawn = await two.delete(f"{CONSENTS}/{consent_id}")
    assert withdrawn.json()["voices"] == ["anna"]
    assert s3.objects() == {}
    assert (await speak(two, "anna")).json()["error"]["code"] == "invalid_voice"
    await until(lambda: not first.state.clones.names(), "the first server has lost it")
    assert (await speak(one, "anna")).json()["error"]["code"] == "invalid_voice"
    for server in servers:
        copies = server.state.clones.path
        await until(lambda: not left(copies, "anna", consent_id), "nothing of it is left")  # noqa: B023


async def test_servers_share_the_quota_of_a_key(
    servers: Pair, clients: tuple[httpx.AsyncClient, httpx.AsyncClient]
) -> None:
    """A voice counts at once on the server that has not heard of it."""
    first, second = servers
    file = VoiceFile(voice(0.0), ())
    for name, server in (("anna", first), ("bert", second)):
        await _save(server.state, VoiceRecord(name=name, key_id="k"), file, replace=False)
    with pytest.raises(InvalidRequestError) as refused:
        await _save(first.state, VoiceRecord(name="carl", key_id="k"), file, replace=False)
    assert refused.value.code is ErrorCode.VOICE_QUOTA
    with pytest.raises(InvalidRequestError) as refused:
        await _save(first.state, VoiceRecord(name="bert", key_id="k"), file, replace=False)
    assert refused.value.code is ErrorCode.INVALID_VOICE


async def test_without_the_bucket_the_voices_are_spoken(
    servers: Pair,
    clients: tuple[httpx.AsyncClient, httpx.AsyncClient],
    s3: S3Server,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Changes are refused with a code and a time; when the bucket is back, they succeed.

    No log and no answer has the credentials.
    """
    (first, _), (one, _) = servers, clients
    await _save(first.state, VoiceRecord(name="anna"), VoiceFile(voice(0.0), ()), replace=False)
    await until(lambda: metric_value(first, "tts_voices_shared") == 1, "the bucket is reached")
    s3.stop()
    await until(lambda: metric_value(first, "tts_voices_shared") == 0, "the bucket is away")
    assert any((await speak(one, "anna")).content)
    attested = {"name": "Anna", "language": "en", "attest": "Anna signed on 3 May 2026."}
    for refused in (
        await one.post(CONSENTS, data=attested),
        await one.delete(f"{VOICES}/anna"),
    ):
        assert (refused.status_code, refused.json()["error"]["code"]) == (
            503,
            "storage_unavailable",
        )
        assert "Retry-After" in refused.headers and s3.bucket not in refused.text
    s3.start()
    await until(lambda: metric_value(first, "tts_voices_shared") == 1, "the bucket is back")
    assert (await one.delete(f"{VOICES}/anna")).status_code == 204
    logged = "".join(capfd.readouterr())
    assert "voices_not_shared" in logged and "S3: EndpointConnectionError" in logged
    assert SECRET not in logged
