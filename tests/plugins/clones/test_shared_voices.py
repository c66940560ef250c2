"""Two servers that share a folder of voices."""

from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from testbed.clones import cloning_settings, voice_file
from voiceagent_tts.plugins.clones.stored_voices import remove_voice
from voiceagent_tts.server.serve import RunningServer, running

pytestmark = [pytest.mark.thorough, pytest.mark.asyncio(loop_scope="module")]

VOICES = "/v1/audio/voices"
CONSENTS = "/v1/audio/voice_consents"

Pair = tuple[RunningServer, RunningServer]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def servers(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    """Two servers of a tiny Base model with one folder of voices."""
    settings = cloning_settings(tmp_path_factory, voices_per_key=2)
    async with running(settings) as first, running(settings) as second:
        yield first, second


@pytest_asyncio.fixture(loop_scope="module")
async def clients(servers: Pair) -> AsyncIterator[tuple[httpx.AsyncClient, httpx.AsyncClient]]:
    """A client of each server; the voices are gone after each test."""
    one, two = (httpx.AsyncClient(base_url=each.url, timeout=120) for each in servers)
    async with one, two:
        yield one, two
    for name in servers[0].state.clones.names():
        remove_voice(servers[0].state.voice_records, name)


async def speak(client: httpx.AsyncClient, name: str) -> httpx.Response:
    """The answer to a request to speak with a voice."""
    body = {"input": "Hello.", "voice": name, "response_format": "pcm"}
    return await client.post("/v1/audio/speech", json=body)


async def test_a_voice_is_added_replaced_and_withdrawn_on_all_servers(
    servers: Pair, clients: tuple[httpx.AsyncClient, httpx.AsyncClient]
) -> None:
    """One server stores it, the other one speaks it; its withdrawal there deletes all of it."""
    (first, second), (one, two) = servers, clients
    attested = {"name": "Anna", "language": "en", "attest": "Anna signed on 3 May 2026."}
    consent_id = (await one.post(CONSENTS, data=attested)).json()["id"]
    fields = {"name": "Anna", "consent_id": consent_id}
    added = await one.post(VOICES, data=fields, files={"voice_file": voice_file(0.0)})
    assert added.status_code == 201, added.text
    assert "anna" in second.state.voice_records.voices()
    assert any((await speak(two, "anna")).content)
    replaced = await one.post(
        VOICES, data=fields | {"replace": "true"}, files={"voice_file": voice_file(0.5)}
    )
    assert replaced.status_code == 201, replaced.text
    assert second.state.clones.read("anna") == voice_file(0.5)
    assert any((await speak(two, "anna")).content)
    withdrawn = await two.delete(f"{CONSENTS}/{consent_id}")
    assert withdrawn.json()["voices"] == ["anna"]
    for client in clients:
        assert (await speak(client, "anna")).json()["error"]["code"] == "invalid_voice"
    left = [each.name for each in first.state.clones.path.rglob("*") if each.is_file()]
    assert left == [".lock"]
