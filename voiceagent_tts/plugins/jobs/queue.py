"""The queue of jobs: lists and a stream of Redis, which forget nothing when a server dies.

A job is a hash. It waits in the list of its submitter; a server takes the next one of the submitter
with the fewest running jobs, so that many jobs of one key delay no other's. Then the job is an
entry of a stream that the servers read as one consumer group. A server that has taken an entry
renews it; an entry that was not renewed for `LEASE_S` goes to the next
server. Every change of a job is one script that checks who owns it, so a server that comes back
from a long pause cannot finish a job that another one has taken.

Source: https://redis.io/docs/latest/commands/xautoclaim/
"""

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from voiceagent_tts.access.keys import Caller, network_of
from voiceagent_tts.access.redis_server import PREFIX
from voiceagent_tts.errors import ErrorCode, OverloadedError

if TYPE_CHECKING:
    from redis.asyncio import Redis

LEASE_S = 5.0
"""Time after which a job of a server that has died goes to another one."""
MAX_STARTS = 5
"""Times that a job is started; one that has ended so many servers is given up."""

_STREAM = f"{PREFIX}:jobs"
_GROUP = "servers"
_WAITING = f"{PREFIX}:jobs:waiting"
"""The set of all jobs that wait."""
_TURNS = f"{PREFIX}:jobs:turns"
"""The submitters with waiting jobs, the one that has waited longest for its turn first."""
_TURN = f"{PREFIX}:jobs:turn"
_LISTS = f"{PREFIX}:jobs:waiting:"
"""The waiting jobs of a submitter, whose name follows."""
_SECRET = f"{PREFIX}:jobs:secret"

_SUBMIT = """
if redis.call('SCARD', KEYS[3]) >= tonumber(ARGV[1]) then return 'share' end
local unfinished = redis.call('XLEN', KEYS[2]) + redis.call('SCARD', KEYS[4])
if unfinished >= tonumber(ARGV[2]) then return 'full' end
local bytes = tonumber(ARGV[6])
for _, each in ipairs(redis.call('HVALS', KEYS[8])) do bytes = bytes + tonumber(each) end
if bytes > tonumber(ARGV[7]) then return 'bytes' end
redis.call('HSET', KEYS[8], ARGV[4], ARGV[6])
redis.call('HSET', KEYS[1], unpack(ARGV, 8))
redis.call('EXPIRE', KEYS[1], ARGV[3])
redis.call('SADD', KEYS[3], ARGV[4])
redis.call('SADD', KEYS[4], ARGV[4])
if not redis.call('ZSCORE', KEYS[5], ARGV[5]) then
  redis.call('ZADD', KEYS[5], redis.call('INCR', KEYS[7]), ARGV[5])
end
redis.call('RPUSH', KEYS[6], ARGV[4])
return 'queued'
"""
"""Stores a job, unless its submitter's share, also of bytes, or the whole queue is used up."""
_TAKE = """
local function read()
  local streams = redis.call(
    'XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', 1, 'STREAMS', KEYS[1], '>')
  return streams and streams[1][2][1]
end
local written_before = read()
if written_before then return written_before end
local running, submitter, fewest = cjson.decode(ARGV[3]), nil, tonumber(ARGV[4])
for _, each in ipairs(redis.call('ZRANGE', KEYS[2], 0, 999)) do
  local jobs = running[each] or 0
  if jobs < fewest then submitter, fewest = each, jobs end
end
if not submitter then return false end
local job = redis.call('LPOP', ARGV[5] .. submitter)
redis.call('SREM', KEYS[3], job)
if redis.call('EXISTS', ARGV[5] .. submitter) == 0 then
  redis.call('ZREM', KEYS[2], submitter)
else
  redis.call('ZADD', KEYS[2], redis.call('INCR', KEYS[4]), submitter)
end
redis.call('XADD', KEYS[1], '*', 'job', job, 'submitter', submitter)
return read()
"""
"""Makes the next job of the submitter with the fewest running ones an entry, and takes it. Entries
that nobody has read are of earlier versions, whose stream had waiting jobs too."""
_START = """
local status = redis.call('HGET', KEYS[1], 'status')
if status == 'queued' or status == 'running' then
  redis.call('HSET', KEYS[1], 'status', 'running', 'owner', ARGV[1], 'started_at', ARGV[2])
  redis.call('HINCRBY', KEYS[1], 'starts', 1)
  return 'running'
end
if status then redis.call('HSET', KEYS[1], 'owner', ARGV[1]) end
return status
"""
_RENEW = """
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return false end
redis.call('XCLAIM', KEYS[2], ARGV[2], ARGV[1], 0, ARGV[3], 'IDLE', ARGV[4], 'JUSTID')
return redis.call('HGET', KEYS[1], 'status')
"""
_FINISH = """
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return 0 end
if redis.call('HGET', KEYS[1], 'status') ~= 'running' then return 0 end
redis.call('HSET', KEYS[1], 'request', '{}', unpack(ARGV, 2))
return 1
"""
"""Ends a job, whose request is needed no more."""
_DROP_IDLE = """
for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  if consumer[4] == 0 then redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], consumer[2]) end
end
"""
"""Deletes the consumers without a job. One whose answer was lost has a job that is not known here;
Redis would forget the job with the consumer."""
_REMOVE = """
local owner = redis.call('HGET', KEYS[1], 'owner')
if owner and owner ~= ARGV[1] then return 0 end
redis.call('XACK', KEYS[2], ARGV[2], ARGV[3])
redis.call('XDEL', KEYS[2], ARGV[3])
redis.call('SREM', KEYS[3], ARGV[4])
redis.call('HDEL', KEYS[4], ARGV[4])
return 1
"""
_CANCEL = """
local status = redis.call('HGET', KEYS[1], 'status')
if status == 'queued' or status == 'running' then
  redis.call('HSET', KEYS[1], 'status', 'cancelled', 'finished_at', ARGV[1], 'request', '{}')
  return 'cancelled'
end
return status
"""
_SET_WEBHOOK_STATE = """
if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('HSET', KEYS[1], 'webhook_state', ARGV[1]) end
"""
"""Without the check it would create a hash that never expires."""


class JobStatus(StrEnum):
    """Where a job stands; the last three are final."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Claim:
    """A job that this server has taken.

    Attributes:
        job_id: id of the job.
        entry_id: id of its entry in the stream.
        owner: name of the taker; each taking has its own.
        submitter: whose share of the queue the job counts towards.
    """

    job_id: str
    entry_id: str
    owner: str
    submitter: str


@dataclass(frozen=True, slots=True)
class Job:
    """A job as Redis keeps it. Times are seconds since 1970; those still to come are None.

    Attributes:
        id: its id.
        status: where it stands.
        request: the body of its request.
        key_id: id of the key that submitted it; None without keys.
        ip: address that submitted it.
        base_url: address of the server that its client used, for links.
        webhook: where to send news of its end; None for nowhere.
        webhook_state: `pending`, `delivered` or `failed`; None without a webhook.
        created_at: when it was submitted.
        started_at: when it was last started.
        finished_at: when it ended.
        starts: number of starts, above 1 if a server died.
        result: name, type and size of the file, and where its audio comes from.
        error: code and message of a failure.
    """

    id: str
    status: JobStatus
    request: dict[str, Any]
    key_id: str | None
    ip: str
    base_url: str
    webhook: str | None
    webhook_state: str | None
    created_at: float
    started_at: float | None = None
    finished_at: float | None = None
    starts: int = 0
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None

    @property
    def submitter(self) -> str:
        """Whose share of the queue it counts towards: its key; without keys, its address."""
        return f"key:{self.key_id}" if self.key_id else f"ip:{network_of(self.ip)}"

    @property
    def is_over(self) -> bool:
        """Whether it will not change any more."""
        return self.status not in (JobStatus.QUEUED, JobStatus.RUNNING)

    @classmethod
    def new(
        cls, request: dict[str, Any], caller: Caller, base_url: str, webhook: str | None
    ) -> "Job":
        """A job that has just been submitted."""
        news = None if webhook is None else "pending"
        return cls(
            uuid.uuid4().hex, JobStatus.QUEUED, request, caller.key_id, caller.ip, base_url,
            webhook, news, time.time(),
        )  # fmt: skip


class JobQueue:
    """The jobs of all servers of one Redis.

    Args:
        redis: the client.
        keep_s: seconds for which a job is kept.
        max_waiting: maximum number of jobs that are not over.
        share: maximum number of them that one key has submitted, or one address without keys.
        share_bytes: maximum size of the requests of these.
    """

    def __init__(
        self, redis: "Redis", keep_s: float, max_waiting: int, share: int, share_bytes: int
    ) -> None:
        self._redis: Any = redis  # whose types say that every answer may be awaited or not
        self._keep_s = keep_s
        self._max_waiting = max_waiting
        self._share = share
        self._share_bytes = share_bytes
        self._submit = redis.register_script(_SUBMIT)
        self._take = redis.register_script(_TAKE)
        self._start = redis.register_script(_START)
        self._renew = redis.register_script(_RENEW)
        self._finish = redis.register_script(_FINISH)
        self._remove = redis.register_script(_REMOVE)
        self._cancel = redis.register_script(_CANCEL)
        self._drop_idle = redis.register_script(_DROP_IDLE)
        self._set_webhook_state = redis.register_script(_SET_WEBHOOK_STATE)

    async def secret(self) -> bytes:
        """The secret that signs links, the same for all servers; made by the first."""
        await self._redis.set(_SECRET, uuid.uuid4().hex + uuid.uuid4().hex, nx=True)
        return await self._redis.get(_SECRET)

    async def submit(self, job: Job) -> None:
        """Append a job; all of it or nothing is stored.

        Raises:
            OverloadedError: too many jobs wait, in all or of this key (`job_quota`).
        """
        await self._create_group()
        fields = _as_fields(job)
        submitter, size_bytes = job.submitter, len(fields["request"])
        outcome = await self._submit(
            [
                *(_key(job.id), _STREAM, _share_key(submitter)),
                *(_WAITING, _TURNS, _LISTS + submitter, _TURN, _sizes_key(submitter)),
            ],
            [
                *(self._share, self._max_waiting, round(self._keep_s), job.id, submitter),
                *(size_bytes, self._share_bytes),
                *(part for pair in fields.items() for part in pair),
            ],
        )
        if outcome == b"bytes":
            raise OverloadedError(
                f"expected the unfinished jobs of one key to have at most "
                f"{self._share_bytes >> 20} MiB together, got more; wait for some to end",
                code=ErrorCode.JOB_QUOTA,
                retry_after_ms=10_000,
            )
        if outcome == b"share":
            raise OverloadedError(
                f"expected at most {self._share} unfinished jobs of one key, got one more; wait "
                "for some to end",
                code=ErrorCode.JOB_QUOTA,
                retry_after_ms=10_000,
            )
        if outcome == b"full":
            raise OverloadedError(
                f"{self._max_waiting} jobs are waiting; try again later", retry_after_ms=10_000
            )

    async def get(self, job_id: str) -> Job | None:
        """Return a job; None if it never existed or is no longer kept."""
        fields = await self._redis.hgetall(_key(job_id))
        return _from_fields(job_id, fields) if fields else None

    async def claim(
        self, running: Mapping[str, int] | None = None, most: int = 1_000_000
    ) -> Claim | None:
        """Take the job of a server that has died, or a new one; None if there is none.

        Args:
            running: number of jobs that this server speaks of each submitter; a new job is of the
                one with the fewest.
            most: maximum number of jobs of one submitter that this server speaks at a time.
        """
        await self._create_group()
        owner = uuid.uuid4().hex
        entry = await self._entry_of_the_dead(owner)
        if entry is None:
            entry = await self._take(
                [_STREAM, _TURNS, _WAITING, _TURN],
                [_GROUP, owner, json.dumps(dict(running or {})), most, _LISTS],
            )
        if entry is None:
            await self._drop_idle([_STREAM], [_GROUP])
            return None
        entry_id, flat = entry
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        submitter = fields.get(b"submitter", b"").decode()  # earlier versions wrote none
        return Claim(fields[b"job"].decode(), entry_id.decode(), owner, submitter)

    async def _entry_of_the_dead(self, owner: str) -> tuple[bytes, list[bytes]] | None:
        """Take one entry that was not renewed. Each answer covers only a part of the entries."""
        cursor, entries = b"0-0", []
        while not entries:
            cursor, entries, *_ = await self._redis.xautoclaim(
                _STREAM, _GROUP, owner, round(LEASE_S * 1000), cursor, count=1
            )
            if cursor == b"0-0":
                break
        if not entries:
            return None
        entry_id, fields = entries[0]
        return entry_id, [part for pair in fields.items() for part in pair]

    async def start(self, claim: Claim) -> JobStatus | None:
        """Mark a job as running here, unless it is over; None if it is no longer kept."""
        status = await self._start([_key(claim.job_id)], [claim.owner, time.time()])
        return None if status is None else JobStatus(status.decode())

    async def renew(self, claim: Claim) -> JobStatus | None:
        """Keep a job; returns its status, None if another server has taken it."""
        return await self._touch(claim, idle_ms=0)

    async def release(self, claim: Claim) -> None:
        """Let another server take a job at once."""
        await self._touch(claim, idle_ms=round(LEASE_S * 1000))

    async def _touch(self, claim: Claim, idle_ms: int) -> JobStatus | None:
        keys = [_key(claim.job_id), _STREAM]
        arguments = [claim.owner, _GROUP, claim.entry_id, idle_ms]
        status = await self._renew(keys, arguments)
        return None if status is None else JobStatus(status.decode())

    async def finish(
        self, claim: Claim, status: JobStatus, outcome: Mapping[str, dict[str, Any]]
    ) -> bool:
        """End a job with its `result` or `error`; returns whether it was running, and here."""
        fields: dict[str, str | float] = {"status": status, "finished_at": time.time()}
        fields |= {name: json.dumps(value) for name, value in outcome.items()}
        flat = [part for pair in fields.items() for part in pair]
        return bool(await self._finish([_key(claim.job_id)], [claim.owner, *flat]))

    async def cancel(self, job_id: str) -> JobStatus | None:
        """Cancel a job that is not over; returns its status, None if there is no such job."""
        status = await self._cancel([_key(job_id)], [time.time()])
        return None if status is None else JobStatus(status.decode())

    async def set_webhook_state(self, job_id: str, state: str) -> None:
        """Note whether the news of a job's end has arrived."""
        await self._set_webhook_state([_key(job_id)], [state])

    async def remove(self, claim: Claim) -> None:
        """Remove a job from the queue, as nothing is left to do; not if another server has it."""
        submitter = claim.submitter
        keys = [_key(claim.job_id), _STREAM, _share_key(submitter), _sizes_key(submitter)]
        await self._remove(keys, [claim.owner, _GROUP, claim.entry_id, claim.job_id])
        await self._drop_idle([_STREAM], [_GROUP])

    async def _create_group(self) -> None:
        from redis.exceptions import ResponseError

        try:
            await self._redis.xgroup_create(_STREAM, _GROUP, id="0", mkstream=True)
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise


def _key(job_id: str) -> str:
    return f"{PREFIX}:job:{job_id}"


def _share_key(submitter: str) -> str:
    return f"{PREFIX}:jobs:of:{submitter}"


def _sizes_key(submitter: str) -> str:
    """The bytes of each unfinished job of a submitter."""
    return f"{PREFIX}:jobs:sizes:{submitter}"


def _as_fields(job: Job) -> dict[str, str | bytes]:
    return {
        "status": job.status,
        "request": json.dumps(job.request, ensure_ascii=False).encode("utf-8", "surrogatepass"),
        "key_id": job.key_id or "",
        "ip": job.ip,
        "base_url": job.base_url,
        "webhook": job.webhook or "",
        "webhook_state": job.webhook_state or "",
        "created_at": str(job.created_at),
    }


def _from_fields(job_id: str, fields: dict[bytes, bytes]) -> Job:
    request = json.loads(fields[b"request"])
    text = {name.decode(): value.decode() for name, value in fields.items() if name != b"request"}

    def number(name: str) -> float | None:
        return float(text[name]) if name in text else None

    def parsed(name: str) -> dict[str, Any] | None:
        return json.loads(text[name]) if name in text else None

    return Job(
        job_id,
        JobStatus(text["status"]),
        request,
        text["key_id"] or None,
        text["ip"],
        text["base_url"],
        text["webhook"] or None,
        text["webhook_state"] or None,
        float(text["created_at"]),
        number("started_at"),
        number("finished_at"),
        int(text.get("starts", 0)),
        parsed("result"),
        parsed("error"),
    )
