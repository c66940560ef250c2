"""`GET /v1/usage`: what each key has used, and which key sees it."""

from pathlib import Path

import httpx
import pytest

from testbed.servers import StartServer
from testbed.wire import Wire
from voiceagent_tts.plugins.keys.keys import KeyDocument, Scope, make_key
from voiceagent_tts.protocol.messages import DoneMessage
from voiceagent_tts.server.serve import RunningServer
from voiceagent_tts.settings.access import Quota, hash_key

KEY = {"additional_headers": {"X-API-Key": "key"}}
SPEECH = {"input": "Hello.", "response_format": "pcm", "voice": "en"}


async def usage_of(server: RunningServer, key: str, query: str = "") -> httpx.Response:
    async with httpx.AsyncClient(base_url=server.url, headers={"X-API-Key": key}) as http:
        return await http.get(f"/v1/usage{query}")


async def test_usage_shows_contexts_characters_and_audio_by_key(start_server: StartServer) -> None:
    """Sockets and HTTP count alike, refused contexts not at all."""
    server = await start_server(api_keys=("key", "other"))
    async with Wire.connected(server.websocket_url, **KEY) as wire:
        received = await wire.say("Hello there.", language="en")
        refused = await wire.open(language="en", voice="no such voice")
        assert (await wire.until(DoneMessage, refused)).reason == "error"
    async with httpx.AsyncClient(base_url=server.url, headers={"X-API-Key": "other"}) as http:
        audio = (await http.post("/v1/audio/speech", json=SPEECH)).content
    answer = (await usage_of(server, "key")).json()
    assert answer["since_start"]
    rows = {row["key_id"]: row for row in answer["data"]}
    one, other = (rows[f"settings-{hash_key(key)[7:15]}"] for key in ("key", "other"))
    assert (one["contexts"], one["characters"], one["name"]) == (1, 12, "api_keys")
    assert one["audio_seconds"] == pytest.approx(received.audio_ms / 1000, abs=0.002)
    assert (other["contexts"], other["characters"]) == (1, 6)
    assert other["audio_seconds"] == pytest.approx(len(audio) / 48_000, abs=0.002)


async def test_a_key_without_admin_sees_its_own_only(
    start_server: StartServer, tmp_path: Path
) -> None:
    """Neither its usage nor what its answers say of their audio tells what others have said."""
    made = [make_key(name, frozenset({Scope.SPEAK}), Quota()) for name in ("one", "two")]
    admin = make_key("admin", frozenset({Scope.SPEAK, Scope.ADMIN}), Quota())
    keys = tuple(each.key for each in (*made, admin))
    (tmp_path / "keys.json").write_text(KeyDocument(keys=keys).dump())
    server = await start_server(keys=str(tmp_path / "keys.json"), cache_mb=10)
    hashes: dict[str, set[str]] = {each.key.id: set() for each in made}
    for _ in range(3):  # the third one comes from the cache
        for each in made:
            headers = {"X-API-Key": each.secret}
            address = server.websocket_url
            async with Wire.connected(address, additional_headers=headers) as wire:
                done = (await wire.say("Your table is booked.", language="en")).done
            assert done.provenance is not None and done.provenance.sha256 is not None
            hashes[each.key.id].add(done.provenance.sha256)
    one, two = hashes.values()
    assert not one & two
    for each in made:
        rows = (await usage_of(server, each.secret)).json()["data"]
        assert [row["key_id"] for row in rows] == [each.key.id]
    rows = (await usage_of(server, admin.secret)).json()["data"]
    assert {row["key_id"] for row in rows} == hashes.keys()
