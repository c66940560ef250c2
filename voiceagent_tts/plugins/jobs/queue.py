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

from voiceagent_tts.errors import ErrorCode, OverloadedError
from voiceagent_tts.plugins.jobs import scripts
from voiceagent_tts.plugins.redis.connection import PREFIX
from voiceagent_tts.server.callers import Caller, network_of

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
_CANCELLED_KEEP_S = 600
"""Time for which a job is kept that was cancelled."""


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
        key_id: id of the key that submitted it; None without keys.
        ip: address that submitted it.
        base_url: address of the server that its client used, for links.
        webhook: where to send news of its end; None for nowhere.
        webhook_state: `pending`, `delivered` or `failed`; None without a webhook.
        starts: number of starts, above 1 if a server died.
        result: name, type and size of the file, and where its audio comes from.
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


@dataclass(frozen=True, slots=True)
class JobLimits:
    """What a key may have in the queue; on a server without keys, an address.

    Attributes:
        unfinished_bytes: what Redis keeps of these in its memory.
        file_bytes: files: 12 hours of WAV at 48 kHz, or 149 of MP3.
        of_all: unfinished jobs of all keys, above which only a key with less than an equal part of
            them may have more.
    """

    unfinished: int = 1000
    unfinished_bytes: int = 16 << 20
    kept: int = 10_000
    file_bytes: int = 4 << 30
    of_all: int = 10_000

    def refusal(self, reason: str) -> OverloadedError:
        """The error of a job or a file that was not stored, for a reason that its script names."""
        if reason == "full":
            return OverloadedError(
                f"{self.of_all} jobs are waiting; try again later", retry_after_ms=10_000
            )
        most = {
            "share": f"{self.unfinished} unfinished jobs of one key; wait for some to end",
            "bytes": f"{self.unfinished_bytes >> 20} MiB of unfinished jobs of one key; wait for "
            "some to end",
            "kept": f"{self.kept} jobs of one key, with those that are over; delete some",
            "files": f"{self.file_bytes >> 30} GiB of files of one key; delete jobs whose files "
            "were fetched",
        }[reason]
        return OverloadedError(
            f"expected at most {most}, and try again",
            code=ErrorCode.JOB_QUOTA,
            retry_after_ms=10_000,
        )


class JobQueue:
    """The jobs of all servers of one Redis.

    Args:
        keep_s: seconds for which a job is kept after its end, and before it.
    """

    def __init__(self, redis: "Redis", keep_s: float, limits: JobLimits) -> None:
        self._redis: Any = redis  # whose types say that every answer may be awaited or not
        self._keep_s = round(keep_s)
        self._limits = limits
        self._submit = redis.register_script(scripts.SUBMIT)
        self._take = redis.register_script(scripts.TAKE)
        self._start = redis.register_script(scripts.START)
        self._renew = redis.register_script(scripts.RENEW)
        self._finish = redis.register_script(scripts.FINISH)
        self._remove = redis.register_script(scripts.REMOVE)
        self._cancel = redis.register_script(scripts.CANCEL)
        self._reserve_file = redis.register_script(scripts.RESERVE_FILE)
        self._free_file = redis.register_script(scripts.FREE_FILE)
        self._delete = redis.register_script(scripts.DELETE)
        self._drop_idle = redis.register_script(scripts.DROP_IDLE)
        self._set_webhook_state = redis.register_script(scripts.SET_WEBHOOK_STATE)

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
        fields = [part for pair in _as_fields(job).items() for part in pair]
        submitter, limits = job.submitter, self._limits
        outcome = await self._submit(
            [
                *(_key(job.id), _STREAM, _share_key(submitter), _WAITING, _TURNS),
                *(_LISTS + submitter, _TURN, _sizes_key(submitter), _kept_key(submitter)),
                _files_key(submitter),
            ],
            [
                *(limits.unfinished, limits.of_all, self._keep_s, job.id, submitter),
                *(sum(map(len, fields)), limits.unfinished_bytes, limits.kept, limits.file_bytes),
                *fields,
            ],
        )
        if outcome != b"queued":
            raise limits.refusal(outcome.decode())

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
        job_id, submitter = fields[b"job"].decode(), fields[b"submitter"].decode()
        return Claim(job_id, entry_id.decode(), owner, submitter)

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
        fields: dict[str, str | float] = {"finished_at": time.time()}
        fields |= {name: json.dumps(value) for name, value in outcome.items()}
        flat = [part for pair in fields.items() for part in pair]
        arguments = [claim.owner, self._keep_s, status, *flat]
        return bool(await self._finish([_key(claim.job_id)], arguments))

    async def cancel(self, job: Job) -> JobStatus | None:
        """Cancel a job that is not over; returns its status, None if there is no such job."""
        submitter = job.submitter
        status = await self._cancel(
            [
                *(_key(job.id), _share_key(submitter), _sizes_key(submitter), _WAITING, _TURNS),
                *(_LISTS + submitter, _kept_key(submitter)),
            ],
            [time.time(), job.id, submitter, _CANCELLED_KEEP_S, self._keep_s],
        )
        return None if status is None else JobStatus(status.decode())

    async def reserve_file(self, job: Job, size_bytes: int) -> None:
        """Count the file of a job, before it is stored, until it is deleted or forgotten.

        Raises:
            OverloadedError: the files of the key are too large together (`job_quota`).
        """
        keys = [_kept_key(job.submitter), _files_key(job.submitter)]
        arguments = [job.id, size_bytes, self._limits.file_bytes, self._keep_s]
        if not await self._reserve_file(keys, arguments):
            raise self._limits.refusal("files")

    async def free_file(self, job: Job) -> None:
        """Count the file of a job no more, which was deleted."""
        await self._free_file([_files_key(job.submitter)], [job.id])

    async def delete(self, job: Job) -> None:
        """Forget a job that is over, whose file was deleted."""
        submitter = job.submitter
        keys = [_key(job.id), _kept_key(submitter), _files_key(submitter)]
        await self._delete(keys, [job.id])

    async def set_webhook_state(self, job_id: str, state: str) -> None:
        """Note whether the news of a job's end has arrived."""
        await self._set_webhook_state([_key(job_id)], [state])

    async def remove(self, claim: Claim) -> None:
        """Remove a job from the queue, as nothing is left to do; not if another server has it."""
        submitter = claim.submitter
        await self._remove(
            [
                *(_key(claim.job_id), _STREAM, _share_key(submitter), _sizes_key(submitter)),
                _kept_key(submitter),
            ],
            [
                *(claim.owner, _GROUP, claim.entry_id, claim.job_id),
                *(_CANCELLED_KEEP_S, self._keep_s),
            ],
        )
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


def _kept_key(submitter: str) -> str:
    """The jobs of a submitter that are over, by the time at which they are forgotten."""
    return f"{PREFIX}:jobs:kept:{submitter}"


def _files_key(submitter: str) -> str:
    """The bytes of each file of a submitter, and their total."""
    return f"{PREFIX}:jobs:files:{submitter}"


def _as_fields(job: Job) -> dict[bytes, bytes]:
    request = json.dumps(job.request, ensure_ascii=False).encode("utf-8", "surrogatepass")
    text = {
        "status": job.status,
        "key_id": job.key_id or "",
        "ip": job.ip,
        "base_url": job.base_url,
        "webhook": job.webhook or "",
        "webhook_state": job.webhook_state or "",
        "created_at": str(job.created_at),
    }
    return {b"request": request} | {k.encode(): value.encode() for k, value in text.items()}


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
