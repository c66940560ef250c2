"""What documented clients really send is spoken, or refused where another voice would speak."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from testbed.wire import Wire
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.speech.models import MODELS
from voiceagent_tts.plugins.speech.request import Served, SpeechRequest

pytestmark = pytest.mark.asyncio(loop_scope="module")

QWEN_SPEAKERS = (
    *("Vivian", "Serena", "Uncle_Fu", "Dylan", "Eric"),
    *("Ryan", "Aiden", "Ono_Anna", "Sohee"),
)
REQUESTS = json.loads((Path(__file__).parent / "client_requests.json").read_text())


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: each["client"])
async def test_a_client_is_served_or_refused(
    http: httpx.AsyncClient, request_: dict[str, Any]
) -> None:
    answer = await http.post(request_.get("path", "/v1/audio/speech"), json=request_["body"])
    if code := request_.get("refusal"):
        assert 400 <= answer.status_code < 502, answer.text
        assert answer.json()["error"]["code"] == code, answer.text
    else:
        assert answer.status_code == 200, answer.text
        assert len(answer.content) > 1_000


async def test_the_served_model_has_a_name(http: httpx.AsyncClient) -> None:
    """It is listed first, and accepted as `model`, as all names of the list are."""
    models = [each["id"] for each in (await http.get("/v1/models")).json()["data"]]
    assert models[0].startswith("espeak-ng") and tuple(models[1:]) == MODELS
    for model in models:
        assert (await http.get(f"/v1/models/{model}")).json()["id"] == model
        answer = await http.post("/v1/audio/speech", json={"model": model, "input": "Hello."})
        assert answer.status_code == 200, model
    published = "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice"
    assert (await http.get(f"/v1/models/{published}")).json()["id"] == published


async def test_qwens_speakers_are_known_to_every_engine(http: httpx.AsyncClient) -> None:
    """All nine names of its models, as OpenAI's are; a name of nobody is refused."""
    for voice in (*QWEN_SPEAKERS, "VIVIAN"):
        answer = await http.post("/v1/audio/speech", json={"voice": voice, "input": "Hi."})
        assert answer.status_code == 200, (voice, answer.text)
    refused = await http.post("/v1/audio/speech", json={"voice": "Vivien", "input": "Hi."})
    assert refused.json()["error"]["code"] == "invalid_voice"


@pytest.mark.parametrize(
    "name",
    [
        *("prompt_speech_path", "speaker_audio", "voice_file", "voice_url", "clone", "ref_text"),
        *("refAudio", "Reference-Id", "speakers", "spk_emb", "timbre_weights", "x_embedding"),
    ],
)
async def test_what_decides_whose_voice_speaks_is_not_ignored(
    http: httpx.AsyncClient, name: str
) -> None:
    """No list knows all such fields: the error names the field and the remedy."""
    for body in ({"input": "Hello."}, {"input": "Hello.", "voice": "nova"}):
        answer = await http.post("/v1/audio/speech", json={**body, name: "someone"})
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (501, "not_supported"), answer.text
        assert error["message"].startswith(f"{name}: expected the name of a voice as `voice`; add")


@pytest.mark.parametrize(
    "name",
    ["user_preference", "download_format", "voice_speed", "audio_quality", "refresh", "swav"],
)
async def test_what_decides_nothing_about_the_voice_is_ignored(name: str) -> None:
    """A client may send what only other servers know."""
    request = SpeechRequest.model_validate({"input": "Hello.", name: "x"})
    assert request == SpeechRequest.model_validate({"input": "Hello."})


async def test_one_voice_has_several_names(http: httpx.AsyncClient) -> None:
    """Each is honoured, and two of them may not name two voices."""
    for name in ("voice", "voice_id", "voice_name", "speaker", "speaker_id", "speaker_name"):
        answer = await http.post("/v1/audio/speech", json={"input": "Hi.", name: "nobody"})
        assert answer.json()["error"]["code"] == "invalid_voice", name
        both = {"voice": "alloy", name: "alloy"}
        answer = await http.post("/v1/audio/speech", json={"input": "Hi.", **both})
        assert answer.status_code == 200, name
    two = {"input": "Hi.", "voice": "alloy", "speaker": "nobody"}
    error = (await http.post("/v1/audio/speech", json=two)).json()["error"]
    assert error["code"] == "invalid_voice" and error["message"].startswith("speaker: expected")
    number = await http.post("/v1/audio/speech", json={"input": "Hi.", "speaker_id": 3})
    assert "speaker_id" in number.json()["error"]["message"]


async def test_a_text_of_a_batch_has_its_own_voice(http: httpx.AsyncClient) -> None:
    """By whatever name: the shared one is for the others."""
    items = [{"input": "Hi."}, {"text": "Ho.", "speaker": "nobody"}]
    body = {"voice": "nova", "items": items}
    results = (await http.post("/v1/audio/speech/batch", json=body)).json()["results"]
    assert "error" not in results[0] and results[1]["error"]["code"] == "invalid_voice"


@pytest.mark.parametrize(
    ("letter", "language"),
    [each.split() for each in ("a en-us", "b en-gb", "e es", "h hi", "p pt-br", "z zh")],
)
async def test_kokoros_letters_are_languages(letter: str, language: str) -> None:
    """An ignored one would read Spanish as if it were English."""
    request = SpeechRequest.model_validate({"input": "Hola.", "lang_code": letter})
    assert request.options(Served()).language == language


async def test_auto_leaves_the_language_to_the_text(http: httpx.AsyncClient, wire: Wire) -> None:
    """At every endpoint, in any letter case: the same audio as without a language."""
    text = "Guten Tag, wie geht es Ihnen heute?"
    pcm_bytes = []
    for language in ({}, {"language": "Auto"}, {"language": "auto"}, {"language": "en"}):
        fields = {"input": text, "response_format": "pcm", **language}
        pcm_bytes.append(len((await http.post("/v1/audio/speech", json=fields)).content))
    alike = pytest.approx(pcm_bytes[0], abs=20 * 48)  # espeak remembers what it said before
    assert pcm_bytes[1:3] == [alike, alike] and pcm_bytes[3] != alike
    batch = {"items": [{"input": text, "language": "AUTO"}]}
    answer = await http.post("/v1/audio/speech/batch", json=batch)
    assert answer.json()["succeeded"] == 1
    lengths = [(await wire.say(text, language=each)).audio_ms for each in (None, "Auto", "en")]
    assert lengths[1] == pytest.approx(lengths[0], abs=20)
    assert lengths[2] != pytest.approx(lengths[0], abs=50)


@pytest.mark.parametrize(
    ("fields", "voice"),
    [
        ({"task_type": "Base", "voice": "mine"}, "mine"),
        ({"task_type": "VoiceDesign"}, "designed"),
        ({"model": "Qwen/Qwen3-TTS-12Hz-1.7B-VoiceDesign"}, "designed"),
        ({"model": "the served Base", "voice": None}, None),
    ],
)
async def test_a_task_that_can_be_honoured_is(fields: dict[str, Any], voice: str | None) -> None:
    """A clone of this server, a described voice, and the server's own model."""
    served = Served(("the served Base",), {"mine"})
    request = SpeechRequest.model_validate({"input": "Hello.", **fields})
    assert request.options(served).voice == voice
    with pytest.raises(InvalidRequestError):
        SpeechRequest.model_validate({"input": "", "task_type": "Base"}).options(served)
