"""Jobs against a real Redis: spoken once, whatever happens to the servers meanwhile."""

import asyncio
import base64
import contextlib
import errno
import hmac
import io
import json
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
import soundfile

from testbed.redis_process import RedisProcess
from testbed.server_process import ServerProcess, serving
from testbed.servers import StartServer, metric_value
from testbed.waiting import PATIENCE_S, until
from testbed.watermarks import TEST_KEY
from voiceagent_tts.clones import CloneBook
from voiceagent_tts.config import Settings
from voiceagent_tts.errors import OverloadedError
from voiceagent_tts.plugins.clones.stored_voices import add_voice
from voiceagent_tts.plugins.clones.voice_records import VoiceRecord, VoiceRecords
from voiceagent_tts.plugins.jobs import routes
from voiceagent_tts.plugins.jobs.queue import Job, JobLimits, JobQueue
from voiceagent_tts.plugins.jobs.storage import JobStorage
from voiceagent_tts.plugins.keys.keys import KeyDocument, Scope, key_of_settings, make_key
from voiceagent_tts.plugins.provenance.detector import detect
from voiceagent_tts.plugins.redis.connection import connect
from voiceagent_tts.plugins.speech.containers import ContainerEncoder
from voiceagent_tts.plugins.usage.book import UsageBook
from voiceagent_tts.server import encoding, held
from voiceagent_tts.server.serve import RunningServer, running
from voiceagent_tts.settings.access import Quota, hash_key
from voiceagent_tts.synthesizer.context import Context
from voiceagent_tts.synthesizer.options import ContextOptions

pytestmark = pytest.mark.services

JOBS = "/v1/audio/jobs"
HELLO = {"input": "Hello there, how are you today?", "language": "en", "response_format": "wav"}
LONG = {**HELLO, "input": "This is a long text, which takes a while. " * 20}
ONE, TWO = "the-key-of-one-caller", "the-key-of-another"
OVER = ("done", "failed", "cancelled")


ServerAndClient = tuple[RunningServer, httpx.AsyncClient]


def settings_of(redis: RedisProcess, folder: Path) -> dict[str, str]:
    """Settings of a server with jobs, for the environment; its files are in `jobs` in a folder."""
    return {
        "redis": redis.url, "jobs_storage": str(folder / "jobs"), "webhook_secret": "secret",
        "webhook_private": "true",
    }  # fmt: skip


@contextlib.asynccontextmanager
async def speaking_jobs(
    redis: RedisProcess, folder: Path, **more: Any
) -> AsyncIterator[ServerAndClient]:
    """A server with jobs and more settings, and a client of it."""
    settings = Settings.model_validate({"port": 0, **settings_of(redis, folder), **more})
    async with (
        running(settings) as server,
        httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_S) as http,
    ):
        yield server, http


@pytest_asyncio.fixture
async def server_and_client(redis: RedisProcess, tmp_path: Path) -> AsyncIterator[ServerAndClient]:
    """A server with jobs, and a client of it."""
    async with speaking_jobs(redis, tmp_path) as both:
        yield both


@pytest.fixture
def server(server_and_client: ServerAndClient) -> RunningServer:
    """That server."""
    return server_and_client[0]


@pytest.fixture
def http(server_and_client: ServerAndClient) -> httpx.AsyncClient:
    """That client."""
    return server_and_client[1]


async def job_over(http: httpx.AsyncClient, job_id: str) -> dict[str, Any]:
    """The job, once it is over."""
    deadline = time.monotonic() + PATIENCE_S
    while (job := (await http.get(f"{JOBS}/{job_id}")).json())["status"] not in OVER:
        assert time.monotonic() < deadline, job
        await asyncio.sleep(0.05)
    return job


async def submitted(http: httpx.AsyncClient, **body: Any) -> str:
    """Submit a job; returns its id."""
    response = await http.post(JOBS, json=body)
    assert response.status_code == 202 and response.json()["status"] == "queued"
    return response.json()["id"]


async def test_a_job_becomes_a_file(http: httpx.AsyncClient, receiver: Any) -> None:
    """Its link needs no key and gives marked audio; the news arrives once, without the text."""
    job = await job_over(http, await submitted(http, **HELLO, webhook=receiver.url))
    assert job["status"] == "done" and job["starts"] == 1 and job["error"] is None
    result = job["result"]
    file = (await http.get(result["url"])).content
    assert len(file) == result["bytes"] and result["content_type"] == "audio/wav"
    samples, rate_hz = soundfile.read(io.BytesIO(file), dtype="float32")
    assert result["audio_ms"] == round(1000 * len(samples) / rate_hz)
    assert detect(samples, [TEST_KEY]).is_marked
    assert result["provenance"]["key_id"] == TEST_KEY.id
    await until(lambda: bool(receiver.got), "the news arrives")
    (message,) = receiver.news
    assert message["type"] == "job.done" and message["data"]["id"] == job["id"]
    assert job["created_at"] <= job["started_at"] <= job["finished_at"]
    while (await http.get(f"{JOBS}/{job['id']}")).json()["webhook"] != "delivered":
        await asyncio.sleep(0.02)
    assert "Hello" not in json.dumps(message) and "url" not in message["data"]["result"]


async def test_a_listener_is_heard_while_the_files_of_jobs_are_encoded(
    redis: RedisProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two jobs keep all threads of files until the end of its stream; each has its key's places."""
    encoding_files, heard = set[int](), threading.Event()
    push = ContainerEncoder.push

    def held_up(encoder: ContainerEncoder, pcm: bytes) -> bytes:
        if threading.current_thread().name.startswith("file-encoder"):
            encoding_files.add(threading.get_ident())
            assert heard.wait(PATIENCE_S)
        return push(encoder, pcm)

    monkeypatch.setattr(ContainerEncoder, "push", held_up)
    body = {**HELLO, "response_format": "mp3"}
    async with speaking_jobs(redis, tmp_path, api_keys=f"{ONE},{TWO}") as (_, http):
        jobs: dict[str, str] = {}
        for key in (ONE, TWO):
            http.headers["X-API-Key"] = key
            jobs[key] = await submitted(http, **body)
        await until(
            lambda: len(encoding_files) == encoding._THREADS, "all threads of files are busy"
        )
        owners = {key_of_settings(hash_key(key)).id for key in jobs}
        await until(
            lambda: owners == {owner for _, owner in encoding._places}, "each has its own places"
        )
        spoken = await http.post("/v1/audio/speech", json=body)
        assert spoken.status_code == 200 and len(spoken.content) > 5_000
        heard.set()
        for key, job_id in jobs.items():
            http.headers["X-API-Key"] = key
            assert (await job_over(http, job_id))["status"] == "done"


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "drained"])
async def test_a_job_survives_the_end_of_its_server(
    redis: RedisProcess, tmp_path: Path, receiver: Any, is_killed: bool
) -> None:
    """A server ends in mid-job; the next one completes the job, and its news comes once."""
    settings = settings_of(redis, tmp_path)
    with serving(**settings, throttle='{"rtf": 0.5}') as first:
        async with httpx.AsyncClient(base_url=first.url, timeout=PATIENCE_S) as http:
            job_id = await submitted(http, **LONG, webhook=receiver.url)
            await _running(http, job_id)
        if is_killed:
            first.process.kill()
            first.process.wait()
        else:
            _end(first)
    assert not list((tmp_path / "jobs").glob("*"))
    with serving(**settings) as second:
        async with httpx.AsyncClient(base_url=second.url, timeout=PATIENCE_S) as http:
            job = await job_over(http, job_id)
            link = job["result"]["url"].replace(first.url, second.url)
            file = (await http.get(link)).content
            await until(lambda: bool(receiver.got), "the news arrives")
        _end(second)
    assert job["status"] == "done" and job["starts"] == 2
    samples, _ = soundfile.read(io.BytesIO(file))
    assert len(samples) / 24_000 > 20, "all of the text is spoken"
    assert [path.name for path in (tmp_path / "jobs").iterdir()] == [f"{job_id}.wav"]
    assert [message["data"]["id"] for message in receiver.news] == [job_id]


async def _running(http: httpx.AsyncClient, job_id: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while (await http.get(f"{JOBS}/{job_id}")).json()["status"] != "running":
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def _end(server: ServerProcess) -> None:
    """End a server as an operator does; it does not wait for its jobs."""
    server.terminate()
    assert server.process.wait(PATIENCE_S) == 0


async def test_a_running_job_is_cancelled(redis: RedisProcess, tmp_path: Path) -> None:
    """Its context ends, no file is left, and it stays cancelled."""
    settings = settings_of(redis, tmp_path)
    with serving(**settings, throttle='{"rtf": 0.5}') as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_S) as http:
            job_id = await submitted(http, **LONG)
            await _running(http, job_id)
            response = await http.delete(f"{JOBS}/{job_id}")
            assert response.json()["status"] == "cancelled"
            await until(lambda: not server.metric("tts_contexts_active"), "its context ends")
            assert (await http.delete(f"{JOBS}/{job_id}")).json()["status"] == "cancelled"
        _end(server)
    assert not list((tmp_path / "jobs").glob("*"))


async def test_a_job_that_is_over_is_deleted_with_its_file(
    http: httpx.AsyncClient, redis: RedisProcess, tmp_path: Path
) -> None:
    """The answer shows it for the last time, without a link; what it took is free again.

    One that could not be spoken has the error, and no file.
    """
    jobs = [
        await job_over(http, await submitted(http, **HELLO | {"input": text}))
        for text in ("Hello.", "९८७")
    ]
    assert [job["status"] for job in jobs] == ["done", "failed"]
    assert jobs[1]["result"] is None and jobs[1]["error"]["code"] == "text_unspeakable"
    assert len(list((tmp_path / "jobs").iterdir())) == 1
    for job in jobs:
        deleted = (await http.delete(f"{JOBS}/{job['id']}")).json()
        assert deleted["status"] == job["status"] and "url" not in (deleted["result"] or {})
        assert (await http.get(f"{JOBS}/{job['id']}")).status_code == 404
    assert (await http.get(jobs[0]["result"]["url"])).status_code == 404
    assert not list((tmp_path / "jobs").iterdir())
    client = connect(redis.url)
    assert await client.hgetall("voiceagent-tts:jobs:files:ip:127.0.0.1") == {b"total": b"0"}
    await client.aclose()


async def test_a_job_that_is_cancelled_while_it_is_stored_leaves_no_file(
    http: httpx.AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that stores it cannot be stopped; the file is deleted when it has ended."""
    begun, goes_on = threading.Event(), threading.Event()
    save = JobStorage.save

    def slowly(storage: JobStorage, name: str, data: bytes) -> None:
        begun.set()
        goes_on.wait(PATIENCE_S)
        save(storage, name, data)

    monkeypatch.setattr(JobStorage, "save", slowly)
    deleted = threading.Event()
    delete = JobStorage.delete

    def noted(storage: JobStorage, job_id: str) -> None:
        delete(storage, job_id)
        deleted.set()

    monkeypatch.setattr(JobStorage, "delete", noted)
    job_id = await submitted(http, **HELLO)
    await until(begun.is_set, "the file is being stored")
    assert (await http.delete(f"{JOBS}/{job_id}")).json()["status"] == "cancelled"
    goes_on.set()
    await until(deleted.is_set, "its file is deleted")
    assert not list((tmp_path / "jobs").iterdir())


async def test_files_of_jobs_count_for_their_caller(
    http: httpx.AsyncClient, server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs that fill its share together end one by one, each spoken whole."""
    monkeypatch.setattr(held, "MAX_CALLER_BYTES", 400_000)
    counts, take, save = server.state.held, held.Hold.take, JobStorage.save
    most, begun, goes_on = [0], list[str](), threading.Event()

    def noted(hold: held.Hold, size_bytes: int) -> None:
        try:
            take(hold, size_bytes)
        except OverloadedError:
            goes_on.set()
            raise
        most.append(sum(counts.values()))

    def waiting(storage: JobStorage, name: str, data: bytes | bytearray) -> None:
        begun.append(name)
        if len(begun) == 3:
            goes_on.set()
        goes_on.wait()
        save(storage, name, data)

    monkeypatch.setattr(held.Hold, "take", noted)
    monkeypatch.setattr(JobStorage, "save", waiting)
    text = {"input": "One two three four five six. " * 4, "response_format": "wav"}
    ids = [await submitted(http, **{**HELLO, **text}) for _ in range(3)]
    jobs = [await job_over(http, each) for each in ids]
    assert [job["status"] for job in jobs] == ["done"] * 3
    assert all(job["result"]["bytes"] > 200_000 for job in jobs)
    assert 200_000 < max(most) <= 400_000
    assert not counts


async def test_a_job_over_a_limit_of_a_day_fails(redis: RedisProcess, tmp_path: Path) -> None:
    """It waits a minute at most: the jobs of others come next."""
    async with speaking_jobs(redis, tmp_path, ip_limits="audio_s_per_day=1") as (_, http):
        jobs = [await job_over(http, await submitted(http, **HELLO)) for _ in range(2)]
    assert [job["status"] for job in jobs] == ["done", "failed"]
    assert jobs[1]["error"]["code"] == "rate_limited"


async def test_what_a_job_says_is_charged(redis: RedisProcess, tmp_path: Path) -> None:
    """A word of one letter that a lexicon says as 15 counts as 15; the job is spoken once."""
    async with speaking_jobs(redis, tmp_path, api_keys=(ONE,)) as (server, http):
        http.headers["X-API-Key"] = ONE
        body = {**HELLO, "input": "a a.", "lexicon": {"a": "bcd bcd bcd bcd"}}
        job = await job_over(http, await submitted(http, **body))
        book = next(each for each in server.state.opener.observers if isinstance(each, UsageBook))
        (day,) = (await book.read(1)).values()
    assert (job["status"], [used.chars for used in day.values()]) == ("done", [4 + 2 * 14])


@pytest.mark.parametrize(("scopes", "code"), [((), "unauthorized"), ((Scope.ADMIN,), "forbidden")])
async def test_a_key_that_may_not_speak_any_more_is_not_spoken_for(
    redis: RedisProcess, tmp_path: Path, scopes: tuple[Scope, ...], code: str
) -> None:
    """Its jobs, those that wait too, and its batch end with the error of a new request."""
    new, other = [make_key(each, frozenset({each}), Quota()) for each in (Scope.SPEAK, Scope.ADMIN)]
    path = tmp_path / "keys.json"
    path.write_text(KeyDocument(keys=(new.key, other.key)).dump())
    settings = settings_of(redis, tmp_path) | {"keys": str(path)}
    changed = [new.key.model_copy(update={"scopes": frozenset(scopes)})] if scopes else []
    client = connect(redis.url)
    queue = JobQueue(client, 100, JobLimits())

    async def over(job_id: str) -> Job:
        while (job := await queue.get(job_id)) is None or not job.is_over:
            await asyncio.sleep(0.05)
        return job

    with serving(**settings, throttle='{"rtf": 1.0}') as server:
        headers = {"Authorization": f"Bearer {new.secret}"}
        async with (
            httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_S, headers=headers) as http,
            asyncio.timeout(PATIENCE_S),
        ):
            ids = [await submitted(http, **LONG) for _ in range(5)]
            body = {"items": [LONG] * 6}
            speaking = asyncio.create_task(http.post("/v1/audio/speech/batch", json=body))
            observer = {"Authorization": f"Bearer {other.secret}"}
            while (
                "tts_contexts_active 7" not in (await http.get("/metrics", headers=observer)).text
            ):
                await asyncio.sleep(0.05)
            path.write_text(KeyDocument(keys=(other.key, *changed)).dump())
            jobs = [await over(job_id) for job_id in ids]
            results = (await speaking).json()["results"]
        _end(server)
    await client.aclose()
    assert [(job.error or {})["code"] for job in jobs] == [code] * 5
    assert [each["error"]["code"] for each in results] == [code] * 6


async def test_a_job_with_nothing_to_speak_succeeds(http: httpx.AsyncClient) -> None:
    """Its file has no samples."""
    for text in ("", "👍"):
        job = await job_over(http, await submitted(http, **{**HELLO, "input": text}))
        assert (job["status"], job["error"]) == ("done", None)


WRONG_JOBS: list[dict[str, Any]] = [
    {},
    {"input": None},
    {"input": 5},
    {"input": "x" * 100_000},
    {**HELLO, "voice": "nobody"},
    {**HELLO, "language": "klingon"},
    {**HELLO, "speed": 100},
    {**HELLO, "webhook": "file:///etc/passwd"},
    {**HELLO, "webhook": 7},
]


async def test_a_wrong_job_is_refused_at_once(http: httpx.AsyncClient) -> None:
    """What would fail later is not accepted."""
    for body in WRONG_JOBS:
        assert (await http.post(JOBS, json=body)).status_code == 400, str(body)[:100]


async def test_the_host_that_a_job_keeps_is_bounded(http: httpx.AsyncClient) -> None:
    """A header may have 60,000 characters, and the job would keep them for a day."""
    for chars, status in ((255, 202), (256, 400)):
        response = await http.post(JOBS, json=HELLO, headers={"Host": "h" * chars})
        assert response.status_code == status
    assert response.json()["error"]["code"] == "invalid_param"


async def test_links_and_ids_are_checked(http: httpx.AsyncClient) -> None:
    """An unknown job, a changed link and a link without a signature are refused."""
    for method in ("GET", "DELETE"):
        assert (await http.request(method, f"{JOBS}/unknown")).status_code == 404
    url = (await job_over(http, await submitted(http, **HELLO)))["result"]["url"]
    assert (await http.get(url + "0")).status_code == 403
    assert (await http.get(url.partition("?")[0])).status_code == 400


async def test_a_file_is_looked_for_beside_the_event_loop(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder may be a mount that does not answer."""
    url = (await job_over(http, await submitted(http, **HELLO)))["result"]["url"]
    threads: set[threading.Thread] = set()
    is_file = Path.is_file

    def noted(path: Path) -> bool:
        if path.suffix == ".wav":
            threads.add(threading.current_thread())
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", noted)
    assert (await http.get(url)).status_code == 200
    assert threads and threading.main_thread() not in threads


async def test_jobs_belong_to_their_key(redis: RedisProcess, tmp_path: Path) -> None:
    """Another key does not see a job; its link works without any key."""
    async with speaking_jobs(redis, tmp_path, api_keys=f"{ONE},{TWO}") as (_, http):
        http.headers["Authorization"] = f"Bearer {ONE}"
        job = await job_over(http, await submitted(http, **HELLO))
        http.headers["Authorization"] = f"Bearer {TWO}"
        assert (await http.get(f"{JOBS}/{job['id']}")).status_code == 404
        assert (await http.delete(f"{JOBS}/{job['id']}")).status_code == 404
        del http.headers["Authorization"]
        assert (await http.get(f"{JOBS}/{job['id']}")).status_code == 401
        assert (await http.get(job["result"]["url"])).status_code == 200


async def test_the_news_of_a_key_is_signed_with_its_own_secret(
    redis: RedisProcess, tmp_path: Path, receiver: Any
) -> None:
    """The answer to the job has it: no other key can have news signed with it."""
    secrets = dict[str, str]()
    async with speaking_jobs(redis, tmp_path, api_keys=f"{ONE},{TWO}") as (_, http):
        for key in (ONE, TWO):
            http.headers["Authorization"] = f"Bearer {key}"
            job = (await http.post(JOBS, json=HELLO | {"webhook": receiver.url})).json()
            secrets[job["id"]] = job["webhook_secret"]
            silent = (await http.post(JOBS, json=HELLO)).json()
            assert "webhook_secret" not in silent
        await until(lambda: len(receiver.got) == 2, "the news arrives")
    assert len(set(secrets.values())) == 2
    for _, headers, body in receiver.got:
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        secret = base64.b64decode(secrets[headers["webhook-id"]].removeprefix("whsec_"))
        digest = base64.b64encode(hmac.digest(secret, signed, "sha256")).decode()
        assert headers["webhook-signature"] == f"v1,{digest}"


async def test_a_job_is_spoken_with_its_keys_voice(
    redis: RedisProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two keys have a clone of one name; the one that only one of them has is unknown to the other.

    The embedded engine passes for one that speaks clones, until it is told to.
    """
    keys = [make_key(name, frozenset({Scope.SPEAK}), Quota()) for name in ("one", "two")]
    (tmp_path / "keys.json").write_text(KeyDocument(keys=tuple(k.key for k in keys)).dump())
    settings = {"keys": str(tmp_path / "keys.json"), "voices_folder": tmp_path / "voices"}
    async with speaking_jobs(redis, tmp_path, **settings) as (server, http):
        synthesizer, opened = server.state.synthesizer, list[str]()
        for name, key in (("anna", keys[0]), ("anna", keys[1]), ("zoe", keys[0])):
            record = VoiceRecord(name=name, key_id=key.key.id)
            add_voice(VoiceRecords(server.state.clones), record, key.key.id.encode())
        workers = synthesizer.supervisors.items()
        synthesizer.voices = CloneBook(
            {name: replace(each.capabilities, clone_width=8) for name, each in workers},
            server.state.clones_of,
        )
        open_context = synthesizer.open

        async def noted(options: ContextOptions, *others: Any, **named: Any) -> Context:
            context = await open_context(options, *others, **named)
            opened.append(context.voice.engine_name)
            return context

        monkeypatch.setattr(synthesizer, "open", noted)
        for key in keys:
            http.headers["Authorization"] = f"Bearer {key.secret}"
            await job_over(http, await submitted(http, **HELLO, voice="anna"))
        refused = await http.post(JOBS, json={**HELLO, "voice": "zoe"})
    assert opened == [f"anna@{key.key.id}" for key in keys]
    message, _, known = refused.json()["error"]["message"].partition("; ")
    assert message == "expected the name of a voice, got 'zoe'" and "zoe" not in known


async def test_a_server_starts_without_redis_and_speaks_jobs_when_it_comes(
    free_port: int, tmp_path: Path
) -> None:
    """Until then, and when it goes again, jobs are refused for now, and speech is not."""
    settings = Settings.model_validate(
        {"port": 0, "redis": f"redis://127.0.0.1:{free_port}/0", "jobs_storage": str(tmp_path)}
    )
    async with (
        running(settings) as server,
        httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_S) as http,
    ):
        refused = await http.post(JOBS, json=HELLO)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
        assert (await http.post("/v1/audio/speech", json=HELLO)).status_code == 200
        with RedisProcess(free_port) as redis:
            async with asyncio.timeout(PATIENCE_S):
                while (answer := await http.post(JOBS, json=HELLO)).status_code == 503:
                    await asyncio.sleep(0.2)
            assert answer.status_code == 202
            job = await job_over(http, answer.json()["id"])
            assert job["status"] == "done"
            redis.stop()
            assert (await http.post(JOBS, json=HELLO)).status_code == 503
            redis.start()
            assert (await job_over(http, await submitted(http, **HELLO)))["status"] == "done"


def small_share_of_files(patch: pytest.MonkeyPatch) -> None:
    """A key may have less than the file."""
    patch.setattr(routes, "JobLimits", lambda: JobLimits(file_bytes=60_000))


def small_memory(patch: pytest.MonkeyPatch) -> None:
    """A caller may hold less than the file in memory."""
    patch.setattr(held, "MAX_CALLER_BYTES", 50_000)


def failing_disk(number: int) -> Callable[[pytest.MonkeyPatch], None]:
    """A disk whose writes fail with an error."""

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return lambda patch: patch.setattr(Path, "replace", fail)


@pytest.mark.parametrize(
    ("fail", "code", "part", "attempts"),
    [
        (small_share_of_files, "job_quota", "of files of one key", 0),
        (small_memory, "text_too_long", "", 0),
        (failing_disk(errno.ENOSPC), "storage_unavailable", "JOBS_STORAGE", 1),
        (failing_disk(errno.EDQUOT), "storage_unavailable", os.strerror(errno.EDQUOT), 1),
        (failing_disk(errno.EROFS), "storage_unavailable", os.strerror(errno.EROFS), 3),
    ],
    ids=["files of the key", "memory", "full disk", "full share of the disk", "read-only disk"],
)
async def test_a_file_that_cannot_be_kept_fails_its_job(
    redis: RedisProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fail: Callable[[pytest.MonkeyPatch], None],
    code: str,
    part: str,
    attempts: int,
) -> None:
    """It is spoken once, stored again unless that cannot help, and a smaller one is done later."""
    monkeypatch.setattr("voiceagent_tts.plugins.jobs.runner._RETRY_S", 0.01)
    save, stored = JobStorage.save, list[str]()

    def noted(storage: JobStorage, name: str, data: bytes) -> None:
        stored.append(name)
        save(storage, name, data)

    monkeypatch.setattr(JobStorage, "save", noted)
    with monkeypatch.context() as patch:
        fail(patch)
        async with speaking_jobs(redis, tmp_path) as (server, http):
            job = await job_over(http, await submitted(http, **HELLO))
            assert job["status"] == "failed" and job["error"]["code"] == code
            assert part in job["error"]["message"]
            assert metric_value(server, "tts_chars_total") == len(HELLO["input"])
            assert not server.state.held and not list((tmp_path / "jobs").glob("*"))
            assert len(stored) == attempts
            if attempts:
                patch.undo()
            small = await job_over(http, await submitted(http, **HELLO | {"input": "Hi."}))
            assert small["status"] == "done"


async def test_webhooks_need_a_secret(
    redis: RedisProcess, tmp_path: Path, start_server: StartServer
) -> None:
    """A server that could not sign a message accepts no address for one."""
    server = await start_server(redis=redis.url, jobs_storage=str(tmp_path))
    async with httpx.AsyncClient(base_url=server.url) as http:
        response = await http.post(JOBS, json={**HELLO, "webhook": "https://example.com/"})
    assert response.status_code == 501
