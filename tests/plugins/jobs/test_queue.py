"""The queue in a real Redis: nothing is lost, and nothing ends twice."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from testbed.redis_process import RedisProcess
from testbed.waiting import PATIENCE_S, until
from voiceagent_tts.errors import ErrorCode, OverloadedError
from voiceagent_tts.plugins.jobs import queue as queue_module
from voiceagent_tts.plugins.jobs import runner as runner_module
from voiceagent_tts.plugins.jobs.queue import Claim, Job, JobLimits, JobQueue, JobStatus
from voiceagent_tts.plugins.jobs.runner import JobRunner
from voiceagent_tts.plugins.redis.connection import connect
from voiceagent_tts.server.callers import Caller

pytestmark = pytest.mark.services

REQUEST = {"input": "Hello.", "voice": "nova"}
DONE = {"result": {"name": "a.mp3", "bytes": 7}}


@pytest.fixture(autouse=True)
def patient_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """No job goes to another server because the test was held up."""
    monkeypatch.setattr(queue_module, "LEASE_S", PATIENCE_S)


@pytest_asyncio.fixture
async def client(redis: RedisProcess) -> AsyncIterator[Redis]:
    """A client of Redis."""
    client = connect(redis.url)
    yield client
    await client.aclose()


OpenQueue = Callable[..., JobQueue]


@pytest.fixture
def open_queue(client: Redis) -> OpenQueue:
    """Open queues with limits."""

    def open_queue(keep_s: int = 100, **limits: int) -> JobQueue:
        return JobQueue(client, keep_s, JobLimits(**limits))

    return open_queue


@pytest.fixture
def queue(open_queue: OpenQueue) -> JobQueue:
    """A queue for three jobs."""
    return open_queue(of_all=3)


def of_key(key_id: str, webhook: str | None = None) -> Job:
    """A job of a key."""
    return Job.new(REQUEST, Caller("192.0.2.1", key_id), "http://host/", webhook)


def new_job(webhook: str | None = None) -> Job:
    """A job of a key."""
    return of_key("key-1", webhook)


async def claimed(queue: JobQueue) -> Claim:
    """The next claim; there must be one."""
    claim = await queue.claim()
    assert claim is not None
    return claim


async def kept(queue: JobQueue, job_id: str) -> Job:
    """A job that is still kept."""
    job = await queue.get(job_id)
    assert job is not None
    return job


async def test_a_released_job_is_taken_at_once(queue: JobQueue, client: Redis) -> None:
    """A server that drains gives its job away, and cannot end it any more; no owner is left."""
    await queue.submit(new_job())
    first = await claimed(queue)
    await queue.start(first)
    await queue.release(first)
    second = await claimed(queue)
    assert second.job_id == first.job_id and second.owner != first.owner
    assert await queue.start(second) is JobStatus.RUNNING
    assert await queue.renew(first) is None
    assert not await queue.finish(first, JobStatus.DONE, DONE)
    await queue.remove(first)
    assert await queue.finish(second, JobStatus.DONE, DONE)
    assert not await queue.finish(second, JobStatus.FAILED, {})
    job = await queue.get(first.job_id)
    assert job is not None and job.status is JobStatus.DONE and job.starts == 2
    await queue.remove(second)
    assert await client.xinfo_consumers("voiceagent-tts:jobs", "servers") == []


async def test_a_cancelled_job_is_not_spoken(queue: JobQueue) -> None:
    """A cancel wins over the end of the work, and does nothing to a job that is over.

    A server takes the one that waits, whose news it has to send.
    """
    waiting, running = new_job("https://host/"), new_job()
    await queue.submit(running)
    claim = await claimed(queue)
    await queue.start(claim)
    await queue.submit(waiting)
    for job in (waiting, running):
        assert await queue.cancel(job) is JobStatus.CANCELLED
        assert await queue.cancel(job) is JobStatus.CANCELLED
    assert await queue.renew(claim) is JobStatus.CANCELLED
    assert not await queue.finish(claim, JobStatus.DONE, DONE)
    assert await queue.start(await claimed(queue)) is JobStatus.CANCELLED
    assert await queue.cancel(new_job()) is None and await queue.get("unknown") is None


async def test_one_key_has_a_share_of_the_queue(open_queue: OpenQueue, client: Redis) -> None:
    """Its third job is refused, those of other keys and addresses are not; an end makes room.

    Submitting many at the same time does not exceed the share, and a cancelled job counts until
    a server has removed it, as it still takes its place.
    """
    queue = open_queue(unfinished=2)
    outcomes = await asyncio.gather(
        *(queue.submit(new_job()) for _ in range(8)), return_exceptions=True
    )
    refused = [each for each in outcomes if each is not None]
    assert len(refused) == 6
    for each in refused:
        assert isinstance(each, OverloadedError) and each.code is ErrorCode.JOB_QUOTA
    for caller in (
        Caller("192.0.2.1", "key-2"), Caller("192.0.2.1"), Caller("192.0.2.1"), Caller("192.0.2.2")
    ):  # fmt: skip
        await queue.submit(Job.new(REQUEST, caller, "http://host/", None))
    first = await claimed(queue)
    await queue.cancel(await kept(queue, first.job_id))
    with pytest.raises(OverloadedError):
        await queue.submit(new_job())
    await queue.remove(first)
    await queue.remove(first)
    await queue.submit(new_job())
    with pytest.raises(OverloadedError):
        await queue.submit(new_job())
    while (claim := await queue.claim()) is not None:
        await queue.remove(claim)
    assert not await client.keys("voiceagent-tts:jobs:of:*")


async def test_many_servers_take_every_job_once(open_queue: OpenQueue) -> None:
    """Eight takers of fifty jobs share them without a doublet."""
    queue = open_queue()
    jobs = [new_job() for _ in range(50)]
    for job in jobs:
        await queue.submit(job)

    async def take_all() -> list[str]:
        taken: list[str] = []
        while (claim := await queue.claim()) is not None:
            await queue.start(claim)
            assert await queue.finish(claim, JobStatus.DONE, DONE)
            await queue.remove(claim)
            taken.append(claim.job_id)
        return taken

    taken = [job for jobs in await asyncio.gather(*(take_all() for _ in range(8))) for job in jobs]
    assert sorted(taken) == sorted(job.id for job in jobs)


async def test_a_job_whose_answer_was_lost_is_taken_again(
    queue: JobQueue, open_queue: OpenQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis gave the job away, and the server did not learn of it: another server takes it."""
    job = new_job()
    await queue.submit(job)
    losing = open_queue(of_all=3)
    take = losing._take

    async def lose_answer_and_retry(*arguments: Any) -> Any:
        await take(*arguments)
        return await take(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(losing, "_take", lose_answer_and_retry)
        assert await losing.claim() is None
    monkeypatch.setattr(queue_module, "LEASE_S", 0.0)
    assert (await claimed(queue)).job_id == job.id


async def test_a_dead_server_s_job_is_found_behind_many_others(open_queue: OpenQueue) -> None:
    """Redis looks at ten entries at a time; all others are renewed, and the last one is not."""
    queue = open_queue()
    for _ in range(25):
        await queue.submit(new_job())
    claims = [await claimed(queue) for _ in range(25)]
    await queue.start(claims[-1])
    await queue.release(claims[-1])
    assert (await claimed(queue)).job_id == claims[-1].job_id


async def test_the_next_job_is_of_the_key_with_the_fewest_running(open_queue: OpenQueue) -> None:
    """In turns where they are equal, in order for each key, and never above the maximum of one."""
    queue = open_queue()
    many = [of_key("a") for _ in range(60)]
    for job in (*many, of_key("b"), of_key("b"), of_key("c")):
        await queue.submit(job)
    running: Counter[str] = Counter()
    taken: list[Claim] = []
    while (claim := await queue.claim(running, 3)) is not None:
        running[claim.submitter] += 1
        taken.append(claim)
    assert running == {"key:a": 3, "key:b": 2, "key:c": 1}
    assert {claim.submitter for claim in taken[:3]} == running.keys()
    ids = [claim.job_id for claim in taken if claim.submitter == "key:a"]
    assert ids == [job.id for job in many[:3]]
    await queue.remove(taken[0])
    rest = [await claimed(queue) for _ in range(57)]
    assert [claim.job_id for claim in rest] == [job.id for job in many[3:]]
    assert await queue.claim() is None


class ScriptedRunner(JobRunner):
    """Notes whose jobs begin; none of them ends."""

    def __init__(self, queue: JobQueue) -> None:
        nothing: Any = SimpleNamespace(delete_old=lambda keep_s: 0)
        super().__init__(nothing, queue, nothing, None)
        self.begun: Counter[str] = Counter()

    async def _speak(self, claim: Claim) -> None:
        self.begun[claim.submitter] += 1
        await asyncio.Event().wait()


async def test_many_long_jobs_of_one_key_delay_no_other(open_queue: OpenQueue) -> None:
    """A sentence of another key begins at once beside sixty jobs that do not end."""
    queue = open_queue()
    for _ in range(60):
        await queue.submit(of_key("a"))
    runner = ScriptedRunner(queue)
    runner.start()
    await until(lambda: runner.begun["key:a"] >= 3, "the first key has its places")
    await queue.submit(of_key("b"))
    await until(lambda: runner.begun["key:b"] == 1, "another key has the last one")
    assert runner.begun["key:a"] == 3
    await runner.close()


class AwayWebhooks:
    """Webhooks whose receivers do not answer."""

    def __init__(self) -> None:
        self.waiting = Counter[str]()
        self.end = threading.Event()

    def of_key(self, _key_id: str | None) -> "AwayWebhooks":
        """Those of all keys."""
        return self

    def send(self, url: str, *_message: object) -> None:
        """Wait until the test is over."""
        self.waiting[url] += 1
        self.end.wait(PATIENCE_S)


class NewsRunner(JobRunner):
    """Speaks at once."""

    def __init__(self, queue: JobQueue, webhooks: AwayWebhooks) -> None:
        nothing: Any = SimpleNamespace(delete_old=lambda _keep_s: 0)
        anything: Any = webhooks
        super().__init__(nothing, queue, nothing, anything)
        self.spoken = Counter[str]()

    async def _speak(self, claim: Claim) -> None:
        await self._queue.finish(claim, JobStatus.DONE, DONE)
        self.spoken[claim.submitter] += 1


async def test_receivers_that_are_away_stop_the_jobs_of_their_key_alone(
    open_queue: OpenQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 dead webhooks of one key stopped the jobs of all; its threads leave room for others."""
    monkeypatch.setattr(runner_module, "_POLL_S", 0.01)
    queue = open_queue()
    for _ in range(80):
        await queue.submit(of_key("a", "https://a/"))
    webhooks = AwayWebhooks()
    runner = NewsRunner(queue, webhooks)
    runner.start()
    await until(lambda: runner.spoken["key:a"] >= 16, "the first key has its jobs")
    await queue.submit(of_key("b", "https://b/"))
    await until(lambda: webhooks.waiting["https://b/"] == 1, "the news of another key is sent")
    assert runner.spoken["key:a"] < 16 + 4  # those that were taken meanwhile
    assert webhooks.waiting["https://a/"] == 2
    webhooks.end.set()
    await until(lambda: runner.spoken["key:a"] == 80, "the others follow")
    await runner.close()


async def test_the_bytes_of_unfinished_jobs_are_limited(
    open_queue: OpenQueue, client: Redis
) -> None:
    """Of each key, as they are in Redis; a job that is over gives its bytes back."""
    queue = open_queue(unfinished_bytes=10_000)
    text = "\u2003" * 1000 + "\ud800"
    small = {"input": text}  # 3 bytes a character

    def job(key: str) -> Job:
        return Job.new(small, Caller("192.0.2.1", key), "http://host/", None)

    first = job("a")
    for each in (first, job("a"), job("a"), job("b")):
        await queue.submit(each)
    with pytest.raises(OverloadedError, match="MiB") as refused:
        await queue.submit(job("a"))
    assert refused.value.code is ErrorCode.JOB_QUOTA
    assert (await kept(queue, first.id)).request == small
    claims = {claim.job_id: claim async for claim in all_claims(queue)}
    claim = claims[first.id]
    await queue.start(claim)
    assert await queue.finish(claim, JobStatus.DONE, DONE)
    assert await client.hget(queue_module._key(first.id), "request") == b"{}"
    await queue.remove(claim)
    await queue.submit(job("a"))
    claims |= {claim.job_id: claim async for claim in all_claims(queue)}
    for claim in claims.values():
        await queue.cancel(await kept(queue, claim.job_id))
        await queue.remove(claim)
    assert not await client.keys("voiceagent-tts:jobs:sizes:*")


async def all_claims(queue: JobQueue) -> AsyncIterator[Claim]:
    """Take all jobs that wait."""
    while (claim := await queue.claim()) is not None:
        yield claim


async def test_the_bytes_of_a_job_are_those_of_all_its_fields(open_queue: OpenQueue) -> None:
    """Also the address that its client used, and that of its webhook."""
    queue = open_queue(unfinished_bytes=5_000)
    long = f"https://{'h' * 5_000}/"
    for base_url, webhook in ((long, None), ("http://host/", long)):
        with pytest.raises(OverloadedError, match="MiB"):
            await queue.submit(Job.new(REQUEST, Caller("192.0.2.1", "a"), base_url, webhook))


async def test_a_cancelled_job_leaves_the_queue_and_counts_until_it_is_forgotten(
    open_queue: OpenQueue, client: Redis
) -> None:
    """Its share is free at once, its record counts for ten minutes, and says `cancelled`."""
    queue = open_queue(keep_s=86_400, unfinished=1, unfinished_bytes=1000, kept=3)
    jobs = [new_job() for _ in range(3)]
    for job in jobs:
        await queue.submit(job)
        await queue.cancel(job)
        assert (await kept(queue, job.id)).status is JobStatus.CANCELLED
        assert 0 < await client.ttl(queue_module._key(job.id)) <= 600
    assert await queue.claim() is None
    with pytest.raises(OverloadedError, match="3 jobs") as refused:
        await queue.submit(new_job())
    assert refused.value.code is ErrorCode.JOB_QUOTA
    await queue.submit(of_key("b"))
    await client.zadd("voiceagent-tts:jobs:kept:key:key-1", {jobs[0].id: 1})  # its time is over
    await queue.submit(new_job())


async def test_jobs_that_are_over_count_until_they_are_forgotten(
    open_queue: OpenQueue, client: Redis
) -> None:
    """For the whole time from their end, and without the address of their webhook."""
    queue = open_queue(keep_s=1000, kept=2)
    jobs = [new_job("https://host/") for _ in range(2)]
    for job in jobs:
        await queue.submit(job)
        await client.expire(queue_module._key(job.id), 10)  # it has waited for long
        claim = await claimed(queue)
        await queue.start(claim)
        await queue.finish(claim, JobStatus.DONE, DONE)
        await queue.remove(claim)
        assert await client.ttl(queue_module._key(job.id)) > 900
    with pytest.raises(OverloadedError, match="2 jobs"):
        await queue.submit(new_job())
    job = await kept(queue, jobs[0].id)
    assert (job.status, job.webhook, job.webhook_state) == (JobStatus.DONE, None, "pending")


async def test_a_full_queue_takes_jobs_of_a_key_with_less_than_its_part(
    open_queue: OpenQueue,
) -> None:
    """Two keys that have filled it keep no third one out; each may have a third of it.

    Ends make room again.
    """
    queue = open_queue(of_all=6, unfinished=3)
    for _ in range(3):
        await queue.submit(of_key("a"))
        await queue.submit(of_key("b"))
    for _ in range(2):
        await queue.submit(of_key("c"))
    for each in ("a", "b", "c"):
        with pytest.raises(OverloadedError) as refused:
            await queue.submit(of_key(each))
        assert refused.value.code is (ErrorCode.OVERLOADED if each == "c" else ErrorCode.JOB_QUOTA)
    for _ in range(3):
        await queue.remove(await claimed(queue))
    await queue.submit(of_key("c"))


async def test_a_command_that_is_sent_again_changes_nothing_more(queue: JobQueue) -> None:
    """Its answer was lost: a job waits once, is started once, and its end is told again."""
    job = new_job()
    for _ in range(2):
        await queue.submit(job)
    claim = await claimed(queue)
    assert await queue.claim() is None
    for _ in range(2):
        assert await queue.start(claim) is JobStatus.RUNNING
    for _ in range(2):
        assert await queue.finish(claim, JobStatus.DONE, DONE)
    await queue.submit(job)
    assert await queue.claim() is None
    over = await kept(queue, job.id)
    assert (over.status, over.starts) == (JobStatus.DONE, 1)


async def test_the_files_of_a_key_have_a_bound(open_queue: OpenQueue, client: Redis) -> None:
    """They count until they are deleted, or their job is forgotten; no job is accepted beyond."""
    queue = open_queue(keep_s=1000, file_bytes=100)
    first, second, third = new_job(), new_job(), new_job()
    for job in (first, second, third):
        await queue.submit(job)
    for _ in range(2):  # its answer was lost
        await queue.reserve_file(first, 60)
    for _ in range(2):
        with pytest.raises(OverloadedError, match="files") as refused:
            await queue.reserve_file(second, 41)
        assert refused.value.code is ErrorCode.JOB_QUOTA
    await queue.reserve_file(of_key("b"), 100)
    await queue.reserve_file(second, 40)
    with pytest.raises(OverloadedError, match="files"):
        await queue.submit(new_job())
    for _ in range(2):
        await queue.delete(first)
        await queue.free_file(second)
    assert await queue.get(first.id) is None
    await queue.reserve_file(third, 100)
    await client.zadd("voiceagent-tts:jobs:kept:key:key-1", {third.id: 1})  # its time is over
    await queue.submit(new_job())
    await queue.reserve_file(second, 100)
