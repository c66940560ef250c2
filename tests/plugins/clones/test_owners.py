"""What belongs to a key: its clones and consents exist for no other key, except for admins."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from testbed.loop_work import loop_work
from testbed.waiting import PATIENCE_S
from voiceagent_tts.clones import CLONE_SUFFIX, CloneBook, VoiceFolder
from voiceagent_tts.config import Settings
from voiceagent_tts.plugins.clones.clone_files import write_file
from voiceagent_tts.plugins.clones.cloning import Cloning
from voiceagent_tts.plugins.clones.messages import VoiceFile
from voiceagent_tts.plugins.clones.stored_voices import add_voice, remove_voice
from voiceagent_tts.plugins.clones.voice_records import VoiceRecord, VoiceRecords
from voiceagent_tts.plugins.keys.keys import KeyDocument, Scope, make_key
from voiceagent_tts.server.admission import Origin
from voiceagent_tts.server.callers import Caller
from voiceagent_tts.server.serve import RunningServer, running
from voiceagent_tts.settings.access import Quota
from voiceagent_tts.synthesizer.options import ContextOptions

VOICES, CONSENTS = "/v1/audio/voices", "/v1/audio/voice_consents"
WRITE = frozenset({Scope.SPEAK, Scope.VOICES_WRITE})
KEYS = {
    "one": make_key("one", WRITE, Quota()),
    "two": make_key("two", WRITE, Quota()),
    "admin": make_key("admin", WRITE | {Scope.ADMIN}, Quota()),
}
ONE, TWO, ADMIN = (KEYS[name].key.id for name in ("one", "two", "admin"))
FOREIGN = "hpp4j3vqnfwauoo0d1us"
"""Name of a clone that is also an id as those of ElevenLabs' library."""
Clients = dict[str, httpx.AsyncClient]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RunningServer]:
    """A server where `one` has the clone `anna`, an admin `bert`, and the disk `carl`."""
    (tmp_path / "keys.json").write_text(
        KeyDocument(keys=tuple(each.key for each in KEYS.values())).dump()
    )
    settings = Settings(port=0, keys=str(tmp_path / "keys.json"), voices_folder=tmp_path / "voices")
    async with running(settings) as server:
        records = VoiceRecords(server.state.clones)
        add_voice(records, VoiceRecord(name="anna", key_id=ONE), b"recording")
        add_voice(records, VoiceRecord(name="bert", key_id=ADMIN, is_shared=True), b"recording")
        write_file(server.state.clones.file("carl"), b"recording")
        yield server


@pytest.fixture
async def clients(server: RunningServer) -> AsyncIterator[Clients]:
    """A client with each key."""
    async with AsyncExitStack() as stack:
        yield {
            name: await stack.enter_async_context(
                httpx.AsyncClient(
                    base_url=server.url, headers={"X-API-Key": key.secret}, timeout=PATIENCE_S
                )
            )
            for name, key in KEYS.items()
        }


async def test_a_clone_of_another_does_not_exist(clients: Clients) -> None:
    """It is neither downloaded nor removed, and the answer is that for a name nobody has."""
    for name, method in itertools.product(("anna", "bert", "carl", "nobody"), ("GET", "DELETE")):
        answer = await clients["two"].request(method, f"{VOICES}/{name}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found"), name


async def test_a_clone_is_its_keys_and_every_admins(clients: Clients) -> None:
    """Both download and remove it; an admin by a name that tells whose it is."""
    assert (await clients["one"].get(f"{VOICES}/anna")).content == b"recording"
    assert (await clients["admin"].get(f"{VOICES}/anna@{ONE}")).content == b"recording"
    assert (await clients["two"].get(f"{VOICES}/anna@{ONE}")).status_code == 404
    assert (await clients["admin"].get(f"{VOICES}/anna")).status_code == 404
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


@pytest.mark.parametrize("replace", [False, True])
async def test_a_name_of_one_key_is_free_for_another(
    server: RunningServer, clients: Clients, replace: bool
) -> None:
    """Also one that an admin has shared."""
    other = VoiceFile(b"other", ())
    for name in ("anna", "bert"):
        record = VoiceRecord(name=name, key_id=TWO)
        await Cloning(server.state).save(record, other, replace=replace)
    for key, name, content in (
        ("one", "anna", b"recording"), ("two", "anna", b"other"), ("two", "bert", b"other"),
        ("admin", "bert", b"recording"), ("admin", f"bert@{TWO}", b"other"),
    ):  # fmt: skip
        assert (await clients[key].get(f"{VOICES}/{name}")).content == content
    assert (await clients["two"].delete(f"{VOICES}/anna")).status_code == 204
    assert (await clients["one"].get(f"{VOICES}/anna")).content == b"recording"
    assert (await clients["two"].get(f"{VOICES}/anna")).status_code == 404


def speak_clones(server: RunningServer, *, has_own_voices: bool) -> None:
    """Let the embedded engine pass for one that speaks clones, until it is told to."""
    workers = {
        name: replace(each.capabilities, clone_width=8)
        for name, each in server.state.synthesizer.supervisors.items()
    }
    if not has_own_voices:
        workers = {name: replace(each, voices=()) for name, each in workers.items()}
    server.state.synthesizer.voices = CloneBook(workers, server.state.clones_of)


def socket(server: RunningServer, path: str, key: str) -> connect:
    """A socket with a key."""
    url = f"ws{server.url.removeprefix('http')}{path}"
    return connect(url, additional_headers={"xi-api-key": key}, max_size=None)


async def asked(websocket: ClientConnection, **message: object) -> dict[str, object]:
    """The answer to a message."""
    await websocket.send(json.dumps(message))
    async with asyncio.timeout(PATIENCE_S):
        return json.loads(await websocket.recv())


async def test_a_list_over_a_socket_is_the_callers(server: RunningServer) -> None:
    """vLLM-Omni's `voice.list` has no clone of another key."""
    speak_clones(server, has_own_voices=True)
    for name, anna in (("one", {"anna"}), ("two", set[str]()), ("admin", {f"anna@{ONE}"})):
        async with socket(server, "/v1/audio/speech/stream", KEYS[name].secret) as websocket:
            voices = (await asked(websocket, type="voice.list"))["voices"]
        assert isinstance(voices, list) and {"bert", "carl"} <= set(voices)
        assert {each for each in voices if each.startswith("anna")} == anna


async def test_an_id_of_a_library_is_no_clone_of_another(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For whoever does not own the clone of this name, ElevenLabs' id selects the first voice.

    No socket has the clones' names read: thousands would delay everyone's audio, also for a client
    without a key.
    """
    speak_clones(server, has_own_voices=True)
    clone = VoiceRecord(name=FOREIGN, key_id=ONE)
    add_voice(VoiceRecords(server.state.clones), clone, b"recording")
    names, listings = VoiceFolder.names, list[VoiceFolder]()

    def counted(folder: VoiceFolder) -> list[str]:
        listings.append(folder)
        return names(folder)

    monkeypatch.setattr(VoiceFolder, "names", counted)
    path = f"/v1/text-to-speech/{FOREIGN}/stream-input?output_format=pcm_8000"
    with pytest.raises(InvalidStatus) as refused:
        async with socket(server, path, "wrong"):
            pass
    assert refused.value.response.status_code == 401
    async with socket(server, path, KEYS["two"].secret) as websocket:
        assert (await asked(websocket, text="Yes. ", flush=True))["audio"]
    assert not listings


async def test_a_client_that_names_no_voice_keeps_to_its_own(server: RunningServer) -> None:
    """Where only clones speak, the first text places a context; never with another's clone."""
    speak_clones(server, has_own_voices=False)
    records = VoiceRecords(server.state.clones)
    remove_voice(records, "bert")
    remove_voice(records, "carl")
    add_voice(records, VoiceRecord(name="zoe", key_id=TWO), b"recording")
    synthesizer = server.state.synthesizer
    request = synthesizer.check(ContextOptions(voice=None, owner=TWO))
    assert request.voice.name == "zoe"
    assert synthesizer._find_worker(request, "en") is None


async def test_a_default_voice_is_found_among_thousands_of_clones(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A context without a voice reads neither the folder on the event loop nor others' files."""
    speak_clones(server, has_own_voices=False)
    records = VoiceRecords(server.state.clones)
    for number in range(1000):
        record = VoiceRecord(name=f"aaron{number}", key_id=ONE)
        records.files.path(record.stored).write_text(record.model_dump_json())
        (server.state.clones.path / f"{record.stored}{CLONE_SUFFIX}").write_bytes(b"recording")
    opener, options = server.state.opener, ContextOptions(voice=None)
    origin = Origin(Caller("127.0.0.1", TWO), "/", {})
    with loop_work(monkeypatch) as work:
        for _ in range(3):
            opened = await opener.open(origin, options)
            assert opened.context.voice.name == "bert"
            opened.context.abandon()
    assert work.most < 10_000
