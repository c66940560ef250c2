"""What belongs to a key: its clones and consents exist for no other key, except for admins."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import httpx
import pytest

from testbed.waiting import PATIENCE_S
from voiceagent_tts.access.keys import KeyDocument, Scope, make_key
from voiceagent_tts.config import Settings
from voiceagent_tts.errors import OverloadedError
from voiceagent_tts.server.cloner_processes import MAX_PLACES, ClonerProcesses
from voiceagent_tts.server.serve import running
from voiceagent_tts.server.voice_records import Viewer, VoiceRecord
from voiceagent_tts.settings.access import Quota

VOICES, CONSENTS = "/v1/audio/voices", "/v1/audio/voice_consents"
WRITE = frozenset({Scope.SPEAK, Scope.VOICES_WRITE})
KEYS = {
    "one": make_key("one", WRITE, Quota()),
    "two": make_key("two", WRITE, Quota()),
    "admin": make_key("admin", WRITE | {Scope.ADMIN}, Quota()),
}
Clients = dict[str, httpx.AsyncClient]


@pytest.fixture
async def clients(tmp_path: Path) -> AsyncIterator[Clients]:
    """A client with each key; `one` has the clone `anna`, an admin `bert`, and the disk `carl`."""
    (tmp_path / "keys.json").write_text(
        KeyDocument(keys=tuple(each.key for each in KEYS.values())).dump()
    )
    settings = Settings(port=0, keys=str(tmp_path / "keys.json"), voices_folder=tmp_path / "voices")
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(running(settings))
        records, one, admin = server.state.voice_records, KEYS["one"].key.id, KEYS["admin"].key.id
        records.add_voice(VoiceRecord(name="anna", key_id=one), b"recording")
        records.add_voice(VoiceRecord(name="bert", key_id=admin, is_shared=True), b"recording")
        server.state.clones.save("carl", b"recording")
        yield {
            name: await stack.enter_async_context(
                httpx.AsyncClient(
                    base_url=server.url, headers={"X-API-Key": key.secret}, timeout=PATIENCE_S
                )
            )
            for name, key in KEYS.items()
        }


@pytest.mark.parametrize("name", ["anna", "bert", "carl", "nobody"])
async def test_a_clone_of_another_does_not_exist(clients: Clients, name: str) -> None:
    """It is neither downloaded nor removed, and the answer is that for a name nobody has."""
    for method in ("GET", "DELETE"):
        answer = await clients["two"].request(method, f"{VOICES}/{name}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


async def test_a_clone_is_its_keys_and_every_admins(clients: Clients) -> None:
    """Both download and remove it."""
    assert (await clients["one"].get(f"{VOICES}/anna")).content == b"recording"
    assert (await clients["admin"].get(f"{VOICES}/anna")).content == b"recording"
    assert (await clients["one"].delete(f"{VOICES}/anna")).status_code == 204
    for name in ("bert", "carl"):
        assert (await clients["admin"].delete(f"{VOICES}/{name}")).status_code == 204


async def test_a_consent_is_its_keys_and_every_admins(clients: Clients) -> None:
    """No other key lists, shows, uses or withdraws it."""
    fields = {"name": "Anna", "language": "en", "attest": "She signed."}
    consent = (await clients["one"].post(CONSENTS, data=fields)).json()
    one = f"{CONSENTS}/{consent['id']}"
    assert (await clients["two"].get(CONSENTS)).json()["data"] == []
    for method in ("GET", "DELETE"):
        assert (await clients["two"].request(method, one)).status_code == 404
    for name in ("one", "admin"):
        assert (await clients[name].get(CONSENTS)).json()["data"] == [consent]
    assert (await clients["admin"].delete(one)).json()["deleted"]


def test_who_speaks_with_a_clone() -> None:
    """Its key, every admin, and every key if it is no key's or an admin has added it."""
    own = VoiceRecord(name="anna", key_id="one")
    shared = VoiceRecord(name="bert", key_id="admin", is_shared=True)
    of_no_key = VoiceRecord(name="carl")
    one, two = Viewer("one", is_admin=False), Viewer("two", is_admin=False)
    assert [one.sees(each) for each in (own, shared, of_no_key, None)] == [True] * 4
    assert [two.sees(each) for each in (own, shared, of_no_key, None)] == [False, True, True, True]
    assert Viewer("admin", is_admin=True).sees(own)
    assert not two.owns(shared) and not two.owns(None)


def test_a_key_leaves_places_to_others() -> None:
    """A key that clones many voices waits for itself; others are served meanwhile."""
    cloners = ClonerProcesses()
    with ExitStack() as stack:
        for _ in range(MAX_PLACES // 4):
            stack.enter_context(cloners.place("one"))
        with pytest.raises(OverloadedError), cloners.place("one"):
            pass
        with cloners.place("two"):
            pass
    with cloners.place("one"):
        pass
