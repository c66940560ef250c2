"""Consents to cloned voices over HTTP, on real servers."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from testbed.clones import voice_file
from testbed.waiting import PATIENCE_S, until
from voiceagent_tts.config import Settings
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.plugins.clones import cloning, stored_voices
from voiceagent_tts.plugins.clones.clone_files import write_file
from voiceagent_tts.plugins.clones.cloning import Cloning
from voiceagent_tts.plugins.clones.consents import EVERYTHING, Consent, Consents
from voiceagent_tts.plugins.clones.messages import VoiceFile
from voiceagent_tts.plugins.clones.stored_voices import remove_voice
from voiceagent_tts.plugins.clones.voice_records import VoiceRecord, VoiceRecords
from voiceagent_tts.plugins.recordings.places import MAX_PLACES
from voiceagent_tts.server.serve import RunningServer, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

REFERENCE = Path(__file__).parents[2] / "reference"
PATH = "/v1/audio/voice_consents"
ANNA = {"name": "Anna", "language": "en-US", "attest": "Anna signed on 3 May 2026."}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def keeping(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    """A server without a cloner that keeps consents in an empty folder."""
    settings = Settings(port=0, voices_folder=tmp_path_factory.mktemp("voices"))
    async with running(settings) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def client(keeping: RunningServer) -> AsyncIterator[httpx.AsyncClient]:
    """A client of that server."""
    async with httpx.AsyncClient(base_url=keeping.url, timeout=PATIENCE_S) as http:
        yield http


async def test_a_consent_is_kept_until_it_is_withdrawn(client: httpx.AsyncClient) -> None:
    """An attested consent is stored, listed, shown, audited and withdrawn."""
    with capture_logs() as logs:
        answer = await client.post(PATH, data=ANNA)
        assert answer.status_code == 201
        consent = answer.json()
        assert (consent["method"], consent["language"]) == ("attest", "en")
        assert consent["phrase"].startswith("This is my voice")
        assert consent in (await client.get(PATH)).json()["data"]
        one = f"{PATH}/{consent['id']}"
        assert (await client.get(one)).json() == consent
        withdrawn = (await client.delete(one)).json()
        assert withdrawn == {"id": consent["id"], "deleted": True, "voices": []}
        assert (await client.get(one)).status_code == 404
    records = [line for line in logs if line.get("audit")]
    assert [each["event"] for each in records] == ["consent_added", "consent_withdrawn"]
    assert ANNA["attest"] in records[0].values()


async def test_a_key_has_few_consents(
    client: httpx.AsyncClient, keeping: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every list of consents reads those of all keys; one that is withdrawn makes room."""
    settings = keeping.state.settings.model_copy(update={"voices_per_key": 2})
    monkeypatch.setattr(keeping.state, "settings", settings)
    other = Consent(name="Ben", language="en", method="attest", statement="yes", key_id="other")
    await Cloning(keeping.state).save_consent(other, None)
    answers = await asyncio.gather(*(client.post(PATH, data=ANNA) for _ in range(5)))
    kept = [answer.json()["id"] for answer in answers if answer.status_code == 201]
    codes = [answer.json()["error"]["code"] for answer in answers if answer.status_code == 403]
    assert (len(kept), codes) == (2, ["voice_quota"] * 3)
    assert (await client.delete(f"{PATH}/{kept[0]}")).status_code == 200
    assert (await client.post(PATH, data=ANNA)).status_code == 201
    for each in (await client.get(PATH)).json()["data"]:
        await client.delete(f"{PATH}/{each['id']}")
    monkeypatch.undo()
    monkeypatch.setattr(cloning, "MAX_CONSENTS_OF_KEY", 1)
    answers = [await client.post(PATH, data=ANNA) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 403]
    await client.delete(f"{PATH}/{answers[0].json()['id']}")


async def test_a_consent_that_is_withdrawn_while_its_voice_is_stored_deletes_it(
    keeping: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A withdrawal between the record of a voice and the voice itself leaves neither.

    A voice that comes after the withdrawal is not stored.
    """
    state, cloning = keeping.state, Cloning(keeping.state)
    consent = Consent(name="Anna", language="en", method="attest", statement="She signed.")
    cloning.consents.save(consent, None)
    withdrawals = list[threading.Thread]()

    def write_late(path: Path, content: bytes) -> None:
        withdrawals.append(meanwhile(lambda: cloning.consents.withdraw(consent.id)))
        write_file(path, content)

    monkeypatch.setattr(stored_voices, "write_file", write_late)
    record = VoiceRecord(name="anna", consent_id=consent.id)
    await cloning.save(record, VoiceFile(voice_file(0.1, 0.2), ()), replace=False)
    withdrawals[0].join(PATIENCE_S)
    assert "anna" not in state.clones and "anna" not in VoiceRecords(state.clones).voices()
    with pytest.raises(InvalidRequestError, match="withdrawn"):
        await cloning.save(record, VoiceFile(voice_file(0.1, 0.2), ()), replace=False)
    assert "anna" not in state.clones and "anna" not in VoiceRecords(state.clones).voices()


async def test_a_voice_that_is_removed_while_it_is_replaced_keeps_its_record_or_goes(
    keeping: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A voice without its record would survive the withdrawal of its consent."""
    state, cloning = keeping.state, Cloning(keeping.state)
    consent = Consent(name="Anna", language="en", method="attest", statement="She signed.")
    cloning.consents.save(consent, None)
    voice = VoiceFile(voice_file(0.1, 0.2), ())
    record = VoiceRecord(name="anna", consent_id=consent.id)
    await cloning.save(record, voice, replace=False)
    removals = list[threading.Thread]()

    def write_late(path: Path, content: bytes) -> None:
        removals.append(meanwhile(lambda: asyncio.run(cloning.remove("anna", EVERYTHING))))
        write_file(path, content)

    monkeypatch.setattr(stored_voices, "write_file", write_late)
    await cloning.save(record, voice, replace=True)
    removals[0].join(PATIENCE_S)
    assert ("anna" in state.clones) == ("anna" in VoiceRecords(state.clones).voices())
    cloning.consents.withdraw(consent.id)
    assert "anna" not in state.clones


async def test_a_name_that_was_taken_meanwhile_is_refused(keeping: RunningServer) -> None:
    """Of two new voices of one name, the second is refused unless it replaces the first."""
    state, cloning = keeping.state, Cloning(keeping.state)
    first, second = (VoiceFile(voice_file(number, 0.2), ()) for number in (0.1, 0.9))
    outcomes = await asyncio.gather(
        *(
            cloning.save(VoiceRecord(name="anna"), voice, replace=False)
            for voice in (first, second)
        ),
        return_exceptions=True,
    )
    refused = [each for each in outcomes if isinstance(each, InvalidRequestError)]
    assert [each.code for each in refused] == [ErrorCode.INVALID_VOICE]
    await cloning.save(VoiceRecord(name="anna"), second, replace=True)
    assert state.clones.read("anna") == second.content
    remove_voice(VoiceRecords(state.clones), "anna")


def meanwhile(change: Callable[[], Any]) -> threading.Thread:
    """Start a change in a thread, and give it time to come in between."""
    thread = threading.Thread(target=change)
    thread.start()
    thread.join(0.2)
    return thread


async def test_uploads_at_the_same_time_stay_within_the_quota(
    keeping: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of six voices of one key that are stored at once, by two servers of one folder, two stay."""
    settings = keeping.state.settings.model_copy(update={"voices_per_key": 2})
    monkeypatch.setattr(keeping.state, "settings", settings)
    async with running(settings) as other:
        saving = [
            Cloning(state).save(
                VoiceRecord(name=f"quota{number}", key_id="k"),
                VoiceFile(voice_file(0.1, 0.2), ()),
                replace=False,
            )
            for number, state in enumerate([keeping.state, other.state] * 3)
        ]
        outcomes = await asyncio.gather(*saving, return_exceptions=True)
    refused = [each for each in outcomes if isinstance(each, InvalidRequestError)]
    assert [each.code for each in refused] == [ErrorCode.VOICE_QUOTA] * 4
    records = VoiceRecords(keeping.state.clones)
    owned = {stored for stored, each in records.voices().items() if each.key_id == "k"}
    assert len(owned) == 2 and owned == {n for n in keeping.state.clones.names() if "quota" in n}
    await Cloning(keeping.state).save(
        VoiceRecord(name=min(owned).removesuffix("@k"), key_id="k"),
        VoiceFile(voice_file(0.3, 0.2), ()),
        replace=True,
    )
    for name in owned:
        remove_voice(records, name)


async def test_only_so_many_uploads_wait_for_a_clone(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each holds a recording in memory; one more is refused at once, and may come again later.

    Two are decoded at a time, which leaves threads to new contexts.
    """
    is_free, lock = threading.Event(), threading.Lock()
    decoding, begun = [0], list[int]()

    def decode(data: bytes) -> npt.NDArray[np.float32]:
        begun.append(len(data))
        with lock:
            decoding.append(decoding[-1] + 1)
        is_free.wait(PATIENCE_S)
        with lock:
            decoding.append(decoding[-1] - 1)
        return np.zeros(24_000, np.float32)

    monkeypatch.setattr("voiceagent_tts.plugins.clones.cloning.read_audio", decode)

    async def upload() -> httpx.Response:
        fields = {"name": "Anna", "language": "en"}
        return await client.post(PATH, data=fields, files={"recording": b"RIFF"})

    uploads = [asyncio.create_task(upload()) for _ in range(MAX_PLACES + 3)]
    await until(lambda: sum(each.done() for each in uploads) == 3, "three are refused")
    await until(lambda: decoding[-1] >= 2, "two are decoded")
    refused = [each.result() for each in uploads if each.done()]
    assert {(each.status_code, each.json()["error"]["code"]) for each in refused} == {
        (503, "overloaded")
    }
    is_free.set()
    await asyncio.gather(*uploads)
    assert len(begun) == MAX_PLACES and max(decoding) == 2
    assert (await upload()).json()["error"]["code"] == "not_supported"


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"language": "xx"}, 400, "invalid_language"),
        ({"attest": " \n"}, 400, "invalid_param"),
        ({"attest": None}, 400, "invalid_param"),
        ({"name": "x" * 201}, 400, "invalid_param"),
        ({"name": "Anna\nBo"}, 400, "invalid_param"),
        ({"name": "Anna\x1b[2J"}, 400, "invalid_param"),
        ({"attest": "Anna signed.\u2028Bo, too."}, 400, "invalid_param"),
    ],
)
async def test_what_is_no_consent_is_refused(
    client: httpx.AsyncClient, change: dict[str, Any], status: int, code: str
) -> None:
    """The error names the field."""
    fields = {name: value for name, value in (ANNA | change).items() if value is not None}
    answer = await client.post(PATH, data=fields)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


@pytest.mark.parametrize("consent_id", ["..", "cons_", "%2e%2e%2fanna", "x" * 3000, "%00"])
async def test_an_odd_id_is_not_found(client: httpx.AsyncClient, consent_id: str) -> None:
    """Ids are compared, and never used as paths."""
    answer = await client.delete(f"{PATH}/{consent_id}")
    assert answer.status_code in (404, 405)


@pytest.mark.thorough
async def test_a_voice_is_that_of_its_consent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clone needs a recorded consent, of its speaker; the quota counts, withdrawal deletes.

    The event loop, which serves listeners meanwhile, reads no file of a consent.
    """
    similarity, threads = Consents.similarity, set[threading.Thread]()

    def noted(self: Consents, consent: Consent, voice_file: bytes) -> float | None:
        threads.add(threading.current_thread())
        return similarity(self, consent, voice_file)

    monkeypatch.setattr(Consents, "similarity", noted)
    monkeypatch.setattr("voiceagent_tts.plugins.clones.cloning.LEAST_SIMILARITY", 0.99)
    sound = (REFERENCE / "reference.wav").read_bytes()
    settings = Settings(
        port=0,
        engine="qwen3",
        models=(str(REFERENCE / "base-0b6"),),
        threads=1,
        aligner="off",
        voices_folder=tmp_path,
        consent_mode="recording",
        voices_per_key=1,
    )
    async with (
        running(settings) as server,
        httpx.AsyncClient(base_url=server.url, timeout=120) as http,
    ):
        fields = {"name": "Anna", "language": "en"}
        recorded = await http.post(PATH, data=fields, files={"recording": ("a.wav", sound)})
        assert recorded.status_code == 201, recorded.text
        consent_id = recorded.json()["id"]

        async def clone(name: str, **data: str) -> httpx.Response:
            files = {"audio_sample": ("a.wav", sound)}
            return await http.post("/v1/audio/voices", data={"name": name, **data}, files=files)

        stated = await clone("anna", consent="Anna agreed.")
        assert (stated.status_code, stated.json()["error"]["code"]) == (403, "consent_required")
        made = await clone("anna", consent_id=consent_id, tag="testing")
        assert made.status_code == 201, made.text
        voices = {
            each["id"]: each for each in (await http.get("/v1/audio/voices")).json()["voices"]
        }
        assert threads and threading.current_thread() not in threads
        assert voices["anna"]["tag"] == "testing"
        assert voices["anna"]["voice_id"] == made.json()["voice_id"]
        second = await clone("anna2", consent_id=consent_id)
        assert (second.status_code, second.json()["error"]["code"]) == (403, "voice_quota")
        other = Consent(name="Bert", language="en", method="recording")
        width = server.state.clones.embedding_width("anna")
        assert width is not None
        Cloning(server.state).consents.save(other, voice_file(*([1.0] + [0.0] * (width - 1))))
        wrong = await clone("anna", consent_id=other.id, replace="true")
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (403, "consent_required")
        withdrawn = (await http.delete(f"{PATH}/{consent_id}")).json()
        assert withdrawn["voices"] == ["anna"]
        assert "anna" not in server.state.clones
