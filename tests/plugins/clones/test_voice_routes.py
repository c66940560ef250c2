"""Clones over HTTP: added, designed, spoken, downloaded and removed, or refused with a reason."""

import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import pytest_asyncio
import soundfile
import torch
from structlog.testing import capture_logs

from testbed.clones import cloning_settings, voice_file
from testbed.known_speech import espeak
from testbed.server_process import ServerProcess
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.model.prompt import Cloned
from voiceagent_tts.plugins.clones.clone_files import delete_file, write_file
from voiceagent_tts.server.serve import RunningServer, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

REFERENCE = Path(__file__).parents[2] / "reference"
DESIGN = "voice_design-1b7"
SOUND = (REFERENCE / "reference.wav").read_bytes()
CONSENT = "Anna agreed on 3 May 2026."
PATH = "/v1/audio/voices"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cloning_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    """A server of the tiny Base and VoiceDesign models over an empty folder."""
    async with running(cloning_settings(tmp_path_factory, models=(DESIGN,))) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def cloning(cloning_server: RunningServer) -> AsyncIterator[httpx.AsyncClient]:
    """An HTTP client of that server; the folder is empty again after each test."""
    async with httpx.AsyncClient(base_url=cloning_server.url, timeout=200) as client:
        yield client
    for name in cloning_server.state.clones.names():
        delete_file(cloning_server.state.clones.file(name))


def upload(name: str, sound: bytes = SOUND, **fields: Any) -> dict[str, Any]:
    """Arguments of a request that adds a voice."""
    return {
        "data": {"name": name, "consent": CONSENT, **fields},
        "files": {"audio_sample": ("a.wav", sound)},
    }


async def listed(client: httpx.AsyncClient) -> dict[str, dict[str, Any]]:
    """The voices of the server by id."""
    return {each["id"]: each for each in (await client.get(PATH)).json()["voices"]}


async def test_a_recording_becomes_a_voice(
    cloning: httpx.AsyncClient, cloning_server: RunningServer
) -> None:
    """It is listed, spoken, downloaded and removed; the answer warns of what may be wrong with it.

    That is its length, and its transcript, which is in another language; the text may be right, as
    sounds are judged. The audit records say who added it with whose consent, and who removed it.
    """
    with capture_logs() as logs:
        await _add_speak_and_remove(cloning)
    records = [line for line in logs if line.get("audit")]
    assert [each["event"] for each in records] == ["voice_added", "voice_removed"]
    added_at = records[0]
    assert (added_at["voice"], added_at["how"]) == ("anna", "recording")
    assert (added_at["consent"], added_at["ip"]) == (CONSENT, "127.0.0.1")


async def _add_speak_and_remove(cloning: httpx.AsyncClient) -> None:
    spoken = espeak("Der Arzt hat morgen um drei einen Termin.", "de", "f2")
    text = "Your table is booked for Friday evening."
    sound = io.BytesIO()
    soundfile.write(sound, np.frombuffer(spoken.pcm, "<i2"), SAMPLE_RATE_HZ, format="WAV")
    added = await cloning.post(PATH, **upload("Anna", sound.getvalue(), ref_text=text))
    assert added.status_code == 201, added.text
    assert added.json()["id"] == "anna"
    short, wrong = added.json()["warnings"]
    assert "at least 3 s" in short
    assert "a transcript of what is said" in wrong and text not in wrong
    assert (await listed(cloning))["anna"]["kind"] == "clone"
    body = {"input": "Hello.", "voice": "anna", "response_format": "pcm"}
    assert any((await cloning.post("/v1/audio/speech", json=body)).content)
    by_id = {**body, "voice": None, "voice_id": added.json()["voice_id"]}
    assert any((await cloning.post("/v1/audio/speech", json=by_id)).content)
    file = (await cloning.get(f"{PATH}/anna")).content
    assert Cloned.from_bytes(file).reference_text == text
    assert (await cloning.delete(f"{PATH}/anna")).status_code == 204
    assert "anna" not in await listed(cloning)
    gone = await cloning.delete(f"{PATH}/anna")
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "not_found")
    gone = await cloning.post("/v1/audio/speech", json=by_id)
    assert gone.json()["error"]["code"] == "invalid_voice"


async def test_a_text_that_is_not_the_transcript_is_refused(cloning: httpx.AsyncClient) -> None:
    """Nothing is stored: the voice would speak other words than its texts."""
    refused = await cloning.post(PATH, **upload("Anna", ref_text="word " * 480))
    assert refused.status_code == 400
    assert refused.json()["error"]["message"].startswith("expected a transcript")
    assert "anna" not in await listed(cloning)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "file",
    [
        Cloned(torch.zeros(7)).to_bytes(),
        Cloned(torch.zeros(64), torch.full((2, 16), 10**6), "Ahoy!").to_bytes(),
        Cloned(torch.zeros(64), torch.zeros(2, 3), "Ahoy!").to_bytes(),
    ],
)
async def test_a_voice_file_of_another_model_is_refused(
    cloning: httpx.AsyncClient, file: bytes
) -> None:
    """An embedding of another width, or other codes: no context could speak with this voice."""
    fields = {"name": "berta", "consent": CONSENT}
    answer = await cloning.post(PATH, data=fields, files={"voice_file": file})
    assert answer.json()["error"]["code"] == "invalid_voice"
    assert "cloned for another model" in answer.json()["error"]["message"]


@pytest.mark.thorough
async def test_a_description_becomes_a_voice(cloning: httpx.AsyncClient) -> None:
    """The VoiceDesign model speaks the text once, and the Base model's clone is stored."""
    body = {"name": "Sailor", "instruct": "An old sailor", "text": "Ahoy!", "seed": 3}
    designed = await cloning.post(f"{PATH}/design", json=body)
    assert designed.status_code == 201, designed.text
    assert (await listed(cloning))["sailor"]["kind"] == "clone"
    voice = Cloned.from_bytes((await cloning.get(f"{PATH}/sailor")).content)
    assert voice.reference_text == "Ahoy!" and voice.reference_codes is not None


@pytest.mark.parametrize(
    ("name", "replace"), [("ANNA", "false"), ("designed", "false"), ("designed", "true")]
)
async def test_a_taken_name_is_refused(
    cloning_server: RunningServer, cloning: httpx.AsyncClient, name: str, replace: str
) -> None:
    """A clone is replaced on request only, and a built-in voice never."""
    kept = voice_file(0.0)
    write_file(cloning_server.state.clones.file("anna"), kept)
    taken = await cloning.post(PATH, **upload(name, replace=replace))
    assert (taken.status_code, taken.json()["error"]["code"]) == (400, "invalid_voice")
    assert cloning_server.state.clones.read("anna") == kept


@pytest.mark.thorough
async def test_pain_09_a_clone_is_replaced_on_request(
    cloning_server: RunningServer, cloning: httpx.AsyncClient
) -> None:
    """The next context speaks with the new one."""
    kept = voice_file(0.0)
    write_file(cloning_server.state.clones.file("anna"), kept)
    assert (await cloning.post(PATH, **upload("anna", replace="true"))).status_code == 201
    assert cloning_server.state.clones.read("anna") != kept


def wav(seconds: float) -> bytes:
    """A silent WAV file."""
    buffer = io.BytesIO()
    soundfile.write(buffer, [0.0] * round(8000 * seconds), 8000, format="WAV")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("fields", "files", "code", "sentence"),
    [
        ({"name": "../anna"}, {"audio_sample": SOUND}, "invalid_voice", "a voice's name"),
        ({"consent": " \n"}, {"audio_sample": SOUND}, "invalid_param", "consent"),
        ({"consent": "Anna\nBo"}, {"audio_sample": SOUND}, "invalid_param", "expected one line"),
        ({}, {}, "invalid_param", "audio_sample or voice_file"),
        ({}, {"audio_sample": SOUND, "voice_file": SOUND}, "invalid_param", "either"),
        ({}, {"audio_sample": b"This is no sound."}, "invalid_param", "WAV, FLAC, MP3 or Ogg"),
        ({}, {"audio_sample": wav(2.0)}, "invalid_param", "got silence"),
        ({}, {"audio_sample": wav(100.0)}, "invalid_param", "at most 60 s"),
        pytest.param(
            {},
            {"voice_file": b"This is no voice."},
            "invalid_voice",
            "expected a voice file",
            marks=pytest.mark.thorough,
        ),
        ({}, {"audio_sample": bytes(17 << 20)}, "message_too_big", "at most"),
    ],
    ids=["name", "blank", "lines", "none", "both", "text", "silent", "long", "file", "big"],
)
async def test_what_cannot_be_a_voice_is_refused(
    cloning: httpx.AsyncClient,
    fields: dict[str, str],
    files: dict[str, bytes],
    code: str,
    sentence: str,
) -> None:
    """The error has a code and says what was expected; nothing is stored."""
    data = {"name": "anna", "consent": CONSENT, **fields}
    answer = await cloning.post(PATH, data=data, files=files or {"other": b"x"})
    error = answer.json()["error"]
    assert error["code"] == code and sentence in error["message"]
    assert "anna" not in await listed(cloning)


async def test_an_engine_that_cannot_clone_says_so(served: ServerProcess) -> None:
    """The list says that it cannot, and each route names the model that it would need."""
    async with httpx.AsyncClient(base_url=served.url) as http:
        answer = (await http.get(PATH)).json()
        assert (answer["can_clone"], answer["can_design"]) == (False, False)
        assert not any(voice["takes_instruct"] for voice in answer["voices"])
        design = {"name": "anna", "instruct": "calm", "text": "Hello."}
        for refused, needed in (
            (await http.post(PATH, **upload("anna")), ("clone voices", "Base")),
            (
                await http.post(f"{PATH}/design", json=design),
                ("design voices", "VoiceDesign", "Base"),
            ),
        ):
            assert (refused.status_code, refused.json()["error"]["code"]) == (501, "not_supported")
            message = refused.json()["error"]["message"]
            assert all(name in message for name in needed), message
        built_in = await http.delete(f"{PATH}/nova")
        assert built_in.json()["error"]["code"] == "not_found"
