"""Two keys that use one name for voices of their own, at every door of the server."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest
import pytest_asyncio
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from testbed.clones import cloning_settings, voice_file
from testbed.waiting import PATIENCE_S
from voiceagent_tts.plugins.clones.stored_voices import add_voice, remove_voice
from voiceagent_tts.plugins.clones.voice_records import VoiceRecord, VoiceRecords
from voiceagent_tts.plugins.keys.keys import KeyDocument, NewKey, Scope, make_key
from voiceagent_tts.server.serve import RunningServer, running
from voiceagent_tts.settings.access import Quota
from voiceagent_tts.synthesizer.context import Context

pytestmark = pytest.mark.asyncio(loop_scope="module")

WRITE = frozenset({Scope.SPEAK, Scope.VOICES_WRITE})
ONE, TWO, THREE = (make_key(name, WRITE, Quota()) for name in ("one", "two", "three"))
ADMIN = make_key("admin", WRITE | {Scope.ADMIN}, Quota())
TEXT = "Hello. "


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    """A server of a tiny model, where `anna` is a voice of `one`, of `two`, and of everyone."""
    keys = tmp_path_factory.mktemp("keys") / "keys.json"
    keys.write_text(KeyDocument(keys=tuple(e.key for e in (ONE, TWO, THREE, ADMIN))).dump())
    settings = cloning_settings(tmp_path_factory, frames=8, keys=str(keys))
    async with running(settings) as server:
        records = VoiceRecords(server.state.clones)
        for number, key in enumerate((ONE, TWO)):
            add_voice(records, VoiceRecord(name="anna", key_id=key.key.id), voice_file(number))
        shared = VoiceRecord(name="anna", key_id=ADMIN.key.id, is_shared=True)
        add_voice(records, shared, voice_file(2))
        add_voice(records, VoiceRecord(name="zoe", key_id=ONE.key.id), voice_file(3))
        yield server


Door = Callable[[RunningServer, NewKey, str], Awaitable[str]]
"""Speaks with a voice; returns the error, if there is one."""


def posts(path: str, **body: Any) -> Door:
    """A route; `VOICE` stands for the voice in its path and body."""

    async def speak(server: RunningServer, key: NewKey, name: str) -> str:
        given = json.loads(json.dumps(body).replace("VOICE", name))
        async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_S) as http:
            headers = {"X-API-Key": key.secret}
            answer = await http.post(path.replace("VOICE", name), json=given, headers=headers)
        results = answer.json().get("results", [{}]) if "json" in str(answer.headers) else [{}]
        return answer.text if answer.is_error else json.dumps(results[0].get("error") or "")

    return speak


def sends(path: str, *messages: dict[str, Any]) -> Door:
    """A socket; ends with the first message that has an error, or ends a context."""

    async def speak(server: RunningServer, key: NewKey, name: str) -> str:
        url = f"ws{server.url.removeprefix('http')}{path.replace('VOICE', name)}"
        headers = {"X-API-Key": key.secret}
        async with asyncio.timeout(PATIENCE_S), connect(url, additional_headers=headers) as socket:
            for message in messages:
                await socket.send(json.dumps(message).replace("VOICE", name))
            while True:
                try:
                    received = await socket.recv()
                except ConnectionClosed:
                    return ""
                if isinstance(received, bytes):
                    continue
                fields = json.loads(received)
                if fields.get("error") or fields.get("type") == "error":
                    return received
                if fields.get("type") in ("done", "session.done") or fields.get("done"):
                    return ""
                if fields.get("isFinal"):
                    return ""

    return speak


CARTESIA = {
    "model_id": "sonic", "transcript": TEXT, "voice": {"mode": "id", "id": "VOICE"},
    "language": "en",
    "output_format": {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24000},
}  # fmt: skip
SPEECH = {"input": TEXT, "voice": "VOICE", "response_format": "pcm"}
DOORS: dict[str, Door] = {
    "tts.v1": sends(
        "/v1/tts/ws",
        {"type": "context.open", "context_id": "a", "voice": "VOICE", "language": "en"},
        {"type": "text", "context_id": "a", "text": TEXT},
        {"type": "end", "context_id": "a"},
    ),
    "OpenAI": posts("/v1/audio/speech", **SPEECH),
    "Base": posts("/v1/audio/speech", **SPEECH, task_type="Base"),
    "batch": posts("/v1/audio/speech/batch", items=[SPEECH]),
    "ElevenLabs": posts("/v1/text-to-speech/VOICE?output_format=pcm_24000", text=TEXT),
    "ElevenLabs' socket": sends(
        "/v1/text-to-speech/VOICE/stream-input?output_format=pcm_24000",
        {"text": TEXT, "flush": True},
        {"text": ""},
    ),
    "Cartesia": posts("/tts/bytes", **CARTESIA),
    "Cartesia's socket": sends("/tts/websocket", {**CARTESIA, "context_id": "a"}),
    "vLLM-Omni": sends(
        "/v1/audio/speech/stream",
        {"type": "session.config", "voice": "VOICE", "language": "en"},
        {"type": "input.text", "text": TEXT},
        {"type": "input.done"},
    ),
}


@pytest.fixture
def spoken(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files of the voices that contexts are opened with."""
    opened, open_context = list[str](), server.state.synthesizer.open

    async def noted(*arguments: Any, **named: Any) -> Context:
        context = await open_context(*arguments, **named)
        if not context.request.options.is_probe:
            opened.append(context.voice.engine_name)
        return context

    monkeypatch.setattr(server.state.synthesizer, "open", noted)
    return opened


@pytest.mark.parametrize("door", DOORS)
async def test_a_name_is_the_callers_voice(
    server: RunningServer, spoken: list[str], door: str
) -> None:
    """Its own clone speaks, else everyone's; no answer tells of another key's."""
    speak = DOORS[door]
    for key in (ONE, TWO, THREE):
        assert await speak(server, key, "anna") in ("", '""')
    assert spoken == [f"anna@{ONE.key.id}", f"anna@{TWO.key.id}", "anna"]
    spoken.clear()
    for name in ("zoe", f"zoe@{ONE.key.id}"):
        foreign, unknown = [await speak(server, TWO, each) for each in (name, "y" * len(name))]
        assert (
            foreign.replace(name, "y" * len(name)).partition("request_id")[0]
            == (unknown.partition("request_id")[0])
        )
    assert not any("zoe" in each for each in spoken)
    assert await speak(server, ADMIN, f"zoe@{ONE.key.id}") in ("", '""')
    assert spoken[-1:] == [f"zoe@{ONE.key.id}"]


@pytest.mark.parametrize(("path", "field"), [("/v1/audio/voices", "id"), ("/v1/voices", "name")])
async def test_a_list_has_the_callers_names(server: RunningServer, path: str, field: str) -> None:
    """Each clone once, by the name with which it is spoken."""
    expected = {
        ONE: ["anna", "zoe"],
        TWO: ["anna"],
        THREE: ["anna"],
        ADMIN: ["anna", *sorted(f"anna@{key.key.id}" for key in (ONE, TWO)), f"zoe@{ONE.key.id}"],
    }
    async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_S) as http:
        for key, names in expected.items():
            voices = (await http.get(path, headers={"X-API-Key": key.secret})).json()["voices"]
            clones = [
                e for e in voices if "clone" in (e.get("kind", ""), e.get("category", "")[:5])
            ]
            assert [each[field] for each in clones] == names


@pytest.mark.parametrize("replace", ["false", "true"])
async def test_no_upload_tells_of_anothers_clone(server: RunningServer, replace: str) -> None:
    """Whether a name is free depends on the caller's own voices; here a recording is missing."""
    async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_S) as http:

        async def add(key: NewKey, name: str) -> str:
            fields = {"name": name, "consent": "Yes.", "replace": replace}
            headers = {"X-API-Key": key.secret}
            answer = await http.post("/v1/audio/voices", data=fields, headers=headers)
            return answer.json()["error"]["message"]

        free = [await add(TWO, name) for name in ("nobody", "zoe")]
        free.append(await add(THREE, "anna"))
        assert set(free) == {"expected either audio_sample or voice_file"}
        own = [await add(TWO, "Anna"), await add(ADMIN, "anna")]
        taken = "a voice 'anna' exists; choose another name, or set `replace`"
        assert set(own) == ({taken} if replace == "false" else set(free))


async def test_a_voice_that_is_replaced_before_the_first_text_is_refused(
    server: RunningServer,
) -> None:
    """The context was opened for another person's voice; the next one speaks with the new one."""
    url = f"ws{server.url.removeprefix('http')}/v1/tts/ws"
    headers = {"X-API-Key": THREE.secret}
    shared = VoiceRecord(name="anna", key_id=ADMIN.key.id, is_shared=True)
    async with asyncio.timeout(PATIENCE_S), connect(url, additional_headers=headers) as socket:

        async def until(*kinds: str) -> dict[str, Any]:
            while True:
                received = await socket.recv()
                if isinstance(received, str) and (found := json.loads(received))["type"] in kinds:
                    return found

        async def send(kind: str, **fields: str) -> None:
            await socket.send(json.dumps({"type": kind, "context_id": "a", **fields}))

        await send("context.open", voice="anna", language="en")
        await until("context.opened")
        remove_voice(VoiceRecords(server.state.clones), "anna")
        add_voice(VoiceRecords(server.state.clones), shared, voice_file(4))
        await send("text", text=TEXT)
        failed = await until("error", "done")
        assert failed["code"] == "invalid_voice" and "open a new context" in failed["message"]
    assert await DOORS["tts.v1"](server, THREE, "anna") == ""


async def test_only_an_admin_shares_what_it_adds(server: RunningServer) -> None:
    """The voice of another key is its own, whatever its request says."""
    records = VoiceRecords(server.state.clones)
    async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_S) as http:
        for key in (THREE, ADMIN):
            fields = {"name": "mine", "consent": "Yes.", "is_shared": "true"}
            answer = await http.post(
                "/v1/audio/voices",
                data=fields,
                files={"voice_file": voice_file(5)},
                headers={"X-API-Key": key.secret},
            )
            assert answer.status_code == 201, answer.text
    stored = {f"mine@{THREE.key.id}": False, "mine": True}
    assert {name: records.files.read(name).is_shared for name in stored} == stored  # type: ignore[union-attr]
    for name in stored:
        remove_voice(records, name)


async def test_a_consent_of_another_key_allows_no_clone(server: RunningServer) -> None:
    """The answer is that for a consent that nobody has."""
    fields = {"name": "Anna", "language": "en", "attest": "She signed."}
    async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_S) as http:
        kept = await http.post(
            "/v1/audio/voice_consents", data=fields, headers={"X-API-Key": ONE.secret}
        )
        consent_id = kept.json()["id"]

        async def refused(consent_id: str) -> tuple[int, str]:
            answer = await http.post(
                "/v1/audio/voices",
                data={"name": "copied", "consent_id": consent_id},
                files={"voice_file": voice_file(6)},
                headers={"X-API-Key": TWO.secret},
            )
            return answer.status_code, answer.json()["error"]["message"].replace(consent_id, "ID")

        status, message = await refused(consent_id)
        assert (status, message) == await refused(consent_id[:-4] + "0000")
        assert status == 404
        assert not [name for name in server.state.clones.names() if "copied" in name]
        await http.delete(
            f"/v1/audio/voice_consents/{consent_id}", headers={"X-API-Key": ONE.secret}
        )
