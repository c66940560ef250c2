"""Lists of voices and models match what the server accepts."""

import asyncio
import threading

import httpx
import pytest

from testbed.waiting import until
from voiceagent_tts.server.serve import RunningServer

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_voices_are_listed(shared_server: RunningServer, http: httpx.AsyncClient) -> None:
    """Each listed voice has an accepted name and its languages; the default is first."""
    voices = (await http.get("/v1/audio/voices")).json()["voices"]
    assert voices[0]["name"] == "default"
    assert {"alloy", "verse", "en-gb"} <= {voice["id"] for voice in voices}
    assert {"en", "de", "zh", "ja", "ko"} <= set(voices[0]["languages"])
    facts = {voice["id"]: (voice["kind"], voice["language"], voice["gender"]) for voice in voices}
    assert facts["nova"] == ("preset", None, "female")
    assert facts["m3"] == ("variant", None, "male")
    assert facts["de"] == ("language", "de", None)
    body = {"input": "Hello.", "voice": voices[-1]["id"], "response_format": "pcm"}
    assert any((await http.post("/v1/audio/speech", json=body)).content)


async def test_a_speaker_has_nothing_of_a_clone_of_its_name(
    http: httpx.AsyncClient, shared_server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The id and the tag in a record are those of a clone, whatever its name."""
    listed = {"nova": {"voice_id": "1", "tag": "testing"}}
    monkeypatch.setattr(shared_server.state, "listed_clones", lambda: listed)
    voices = (await http.get("/v1/audio/voices")).json()["voices"]
    (nova,) = [voice for voice in voices if voice["id"] == "nova"]
    assert (nova["kind"], nova["voice_id"], nova["tag"]) == ("preset", None, None)


@pytest.mark.parametrize("model", ["tts-1-zh", "gpt-4o-mini-tts-en-gb", "qwen3-tts-PT-br"])
async def test_a_model_with_a_language_is_described(http: httpx.AsyncClient, model: str) -> None:
    """What `/v1/audio/speech` accepts as `model` exists here too."""
    answer = await http.get(f"/v1/models/{model}")
    assert (answer.status_code, answer.json()["id"]) == (200, model)
    body = {"model": model, "input": "1, 2, 3.", "response_format": "pcm"}
    assert (await http.post("/v1/audio/speech", json=body)).status_code == 200


@pytest.mark.parametrize("model", ["tts-1-", "tts-1-xx", "tts-1zh", "tts-1-" + "z" * 2000])
async def test_a_model_without_such_a_language_is_unknown(
    http: httpx.AsyncClient, model: str
) -> None:
    """The answer is 404 and short."""
    answer = await http.get(f"/v1/models/{model}")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "not_found"
    assert len(answer.content) < 400


async def test_lists_are_made_one_at_a_time(
    shared_server: RunningServer, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests that wait for the list of a key get the same: new contexts need the threads too."""
    making, most, asked = list[int](), list[int](), threading.Event()

    def names() -> list[str]:
        making.append(1)
        most.append(len(making))
        asked.wait()
        making.pop()
        return []

    monkeypatch.setattr(shared_server.state.synthesizer.voices, "names", names)
    asking = [asyncio.create_task(http.get("/v1/audio/voices")) for _ in range(20)]
    running = shared_server.uvicorn_server.server_state.tasks
    await until(lambda: bool(most) and len(running) >= len(asking), "one is made, and all wait")
    asked.set()
    answers = [(await each).json() for each in asking]
    assert all(answer == answers[0] for answer in answers)
    assert max(most) == 1 and len(most) < 6
