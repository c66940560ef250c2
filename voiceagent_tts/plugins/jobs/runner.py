"""Speaks the jobs of the queue, in the batch class, as far as this server has room for them.

A job that this server does not finish, because it drains or dies, is spoken by the next one from
its beginning. Only the server that owns a job can end it, so it ends once. News of a job is sent
while the next ones are spoken: a receiver that is away delays no other job.
"""

import asyncio
import contextlib
import errno
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from weakref import WeakValueDictionary

import structlog

from voiceagent_tts.errors import (
    EngineError,
    ErrorCode,
    InvalidRequestError,
    OverloadedError,
    VoiceAgentError,
)
from voiceagent_tts.plugins.jobs.batch import MAX_WAIT_S, speak_file
from voiceagent_tts.plugins.jobs.queue import LEASE_S, MAX_STARTS, Claim, Job, JobQueue, JobStatus
from voiceagent_tts.plugins.jobs.storage import JobStorage
from voiceagent_tts.plugins.jobs.webhook import NotDeliveredError, Webhooks
from voiceagent_tts.plugins.redis.connection import away_errors
from voiceagent_tts.plugins.speech.request import Served, SpeechRequest
from voiceagent_tts.plugins.speech.server import error_fields
from voiceagent_tts.plugins.speech.speaking import Listener
from voiceagent_tts.server.admission import Origin
from voiceagent_tts.server.callers import Caller
from voiceagent_tts.server.held import Hold
from voiceagent_tts.server.state import ServerState

KEEP_S = 86_400.0
"""Time for which a job and its file are kept."""
_AT_ONCE = 4
"""Jobs that a server speaks at a time, each with its file in memory."""
_AT_ONCE_OF_ONE = 3
"""Of them, those of one key, or one address without keys: a job takes minutes, and the short one of
another key would wait for its end."""
_POLL_S = 0.5
_AWAY_S = 2.0
"""Pause after an error of Redis."""
_CLEAN_S = 600.0
_RETRY_S = 5.0
_ATTEMPTS = 3
"""Attempts at a job whose engine fails, and at storing a file that was spoken."""
_FULL = (errno.ENOSPC, errno.EDQUOT)
_NEWS_WAITS_S = (0, 5, 30, 120)
"""Pauses before the attempts to deliver the news of a job."""
_MOST_SENDING_OF_ONE = 16
"""Jobs of one submitter that are over and whose news is being sent; beyond, none of its jobs is
taken."""
_SENDERS = 8
"""Threads that send news. Those that the rest of the server shares could all wait for receivers."""
_SENDERS_OF_ONE = 2
"""Of them, those that wait for receivers of one submitter."""
PATH = "/v1/audio/jobs"
_log = structlog.get_logger(__name__)


class _LostError(Exception):
    """Another server has taken a job, because this one was too slow to renew it."""


class _NotStoredError(Exception):
    """A file was spoken, and cannot be stored; to speak it again would not help."""

    def __init__(self, failure: VoiceAgentError) -> None:
        super().__init__(failure.message)
        self.failure = failure


class JobRunner:
    """Takes jobs from the queue and speaks them, several at the same time."""

    def __init__(
        self, state: ServerState, queue: JobQueue, storage: JobStorage, webhooks: Webhooks | None
    ) -> None:
        self._state = state
        self._queue = queue
        self._storage = storage
        self._webhooks = webhooks
        self._tasks: list[asyncio.Task[None]] = []
        self._sending: dict[asyncio.Task[None], str] = {}
        """Tasks that send news, with their submitter."""
        self._alone_of: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Of callers: has the job that may be the only one of its caller."""
        self._senders_of: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._senders = ThreadPoolExecutor(_SENDERS, "webhook")
        self._running: Counter[str] = Counter()
        """Jobs that are spoken here, by submitter."""
        self._claiming = asyncio.Lock()
        self._is_closing = False
        self._is_away = False

    def start(self) -> None:
        """Speak jobs from now on."""
        runs = [self._run() for _ in range(_AT_ONCE)]
        self._tasks = [asyncio.create_task(each) for each in (*runs, self._clean())]

    async def close(self) -> None:
        """Stop, and give the jobs that are being spoken to other servers; idempotent."""
        self._is_closing = True
        while pending := [task for task in (*self._tasks, *self._sending) if not task.done()]:
            for task in pending:  # redis-py loses a cancel that meets the end of a command
                task.cancel()
            await asyncio.wait(pending, timeout=_POLL_S)
        self._senders.shutdown(wait=False, cancel_futures=True)

    async def _run(self) -> None:
        while not self._is_closing:
            try:
                claim = await self._claim()
                self._note_queue(is_away=False)
                if claim is None:
                    await asyncio.sleep(_POLL_S)
                    continue
                try:
                    await self._handle(claim)
                finally:
                    self._running -= Counter((claim.submitter,))  # which drops zeros
            except _LostError:
                _log.warning("job_lost")
            except away_errors() as error:
                self._note_queue(is_away=True, problem=type(error).__name__)
                await asyncio.sleep(_AWAY_S)
            except Exception as error:  # one bad job must not end all jobs of this server
                _log.error("job_not_handled", problem=type(error).__name__, exc_info=error)
                await asyncio.sleep(_AWAY_S)

    async def _claim(self) -> Claim | None:
        """Take a job; one task at a time, as each must know what the others have taken."""
        async with self._claiming:
            sending = Counter(self._sending.values())
            waits = (each for each in sending if sending[each] >= _MOST_SENDING_OF_ONE)
            busy = self._running | Counter(dict.fromkeys(waits, _AT_ONCE_OF_ONE))
            claim = await self._queue.claim(busy, _AT_ONCE_OF_ONE)
            if claim is not None:
                self._running[claim.submitter] += 1
            return claim

    def _note_queue(self, *, is_away: bool, **fields: str) -> None:
        """Log that Redis went away or came back, once for all tasks."""
        if is_away != self._is_away:
            self._is_away = is_away
            log = _log.warning if is_away else _log.info
            log("job_queue_away" if is_away else "job_queue_back", **fields)

    async def _handle(self, claim: Claim) -> None:
        """Speak a job, and begin to send its news; whatever was done before is not repeated."""
        async with self._given_back(claim):
            if await self._queue.start(claim) is JobStatus.RUNNING:
                await self._while_ours(claim, self._speak(claim), stops_if_cancelled=True)
        sending = asyncio.create_task(self._end(claim))
        self._sending[sending] = claim.submitter
        sending.add_done_callback(self._sending.pop)

    async def _end(self, claim: Claim) -> None:
        """Conclude a job that is over, and remove it from the queue."""
        try:
            async with self._given_back(claim):
                await self._while_ours(claim, self._conclude(claim))
                await self._queue.remove(claim)
        except Exception as error:  # it is tried again
            _log.error("job_news_not_sent", job_id=claim.job_id, problem=type(error).__name__)

    @contextlib.asynccontextmanager
    async def _given_back(self, claim: Claim) -> AsyncIterator[None]:
        """Give a job to another server at once if this one stops.

        After an error, the job is taken when its lease has ended.
        """
        try:
            yield
        except asyncio.CancelledError:
            with contextlib.suppress(*away_errors()):
                await self._queue.release(claim)
            raise

    async def _while_ours(
        self, claim: Claim, work: Coroutine[Any, Any, None], *, stops_if_cancelled: bool = False
    ) -> None:
        """Work on a job, and renew it meanwhile."""
        task = asyncio.create_task(work)
        try:
            while not (await asyncio.wait({task}, timeout=LEASE_S / 5))[0]:
                status = await self._queue.renew(claim)
                if status is None:
                    raise _LostError
                if status is JobStatus.CANCELLED and stops_if_cancelled:
                    return
            task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _speak(self, claim: Claim) -> None:
        job = await self._queue.get(claim.job_id)
        if job is None:
            return
        _log.info("job_started", job_id=job.id, starts=job.starts)
        status, outcome = await self._outcome(job)
        if await self._queue.finish(claim, status, outcome):
            _log.info("job_ended", job_id=job.id, status=status.value)
            self._state.metrics.jobs.labels(status.value).inc()

    async def _outcome(self, job: Job) -> tuple[JobStatus, dict[str, dict[str, Any]]]:
        try:
            if job.starts > MAX_STARTS:
                raise EngineError(f"the job ended {MAX_STARTS} servers, and is not tried again")
            return JobStatus.DONE, {"result": await self._speak_and_save(job)}
        except VoiceAgentError as error:
            failure = error
        except _NotStoredError as error:
            failure = error.failure
        return JobStatus.FAILED, {"error": error_fields(failure)}

    async def _speak_and_save(self, job: Job) -> dict[str, Any]:
        """Speak a job; repeat what may succeed later."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return await self._save(job)
            except VoiceAgentError as error:
                wait_s = (error.retry_after_ms or 0) / 1000 or _RETRY_S
                if not error.is_retryable or wait_s > MAX_WAIT_S:
                    raise
                await asyncio.sleep(wait_s)
        return await self._save(job)

    async def _save(self, job: Job) -> dict[str, Any]:
        request = SpeechRequest.parse(job.request, "job", Served.to(self._state, job.key_id))
        origin = Origin(Caller(job.ip, job.key_id), PATH, {"job_id": job.id})
        alone = self._alone_of.setdefault(origin.caller.owner, asyncio.Lock())
        if not alone.locked():
            try:
                return await self._save_file(job, request, origin)
            except OverloadedError as error:
                if error.code is not ErrorCode.RATE_LIMITED:
                    raise
        # The jobs of a caller share its memory: some that fill it together go one by one.
        async with alone:
            return await self._save_file(job, request, origin)

    async def _save_file(self, job: Job, request: SpeechRequest, origin: Origin) -> dict[str, Any]:
        with Hold(self._state.held, f"jobs of {origin.caller.owner}") as hold:
            file = await speak_file(self._state, Listener(origin, _never, hold), request)
            name = f"{job.id}.{request.response_format or 'mp3'}"
            await self._store(job, name, file.data)
            return {
                "name": name,
                "content_type": file.content_type,
                "bytes": len(file.data),
                "audio_ms": file.audio_ms,
                "provenance": file.provenance.model_dump(),
            }

    async def _store(self, job: Job, name: str, data: bytes | bytearray) -> None:
        """Store a file, with some attempts: a mounted folder may be away for a while."""
        try:
            await self._queue.reserve_file(job, len(data))
        except OverloadedError as error:
            raise _NotStoredError(error) from error
        for attempt in range(_ATTEMPTS):
            try:
                await _in_a_thread(lambda: self._storage.save(name, data))
                return
            except OSError as error:
                if error.errno in _FULL or attempt == _ATTEMPTS - 1:
                    _log.error("job_not_stored", job_id=job.id, problem=str(error))
                    raise _NotStoredError(_storage_error(error)) from error
            await asyncio.sleep(_RETRY_S)

    async def _conclude(self, claim: Claim) -> None:
        """Delete what a job without a result has stored, and send the news of its end."""
        job = await self._queue.get(claim.job_id)
        if job is None or not job.is_over:
            return
        if job.status is not JobStatus.DONE:
            await self._delete_file(job)
        await self._send_news(job)

    async def _delete_file(self, job: Job) -> None:
        """Delete a file of a job; one that stays counts until the job is forgotten."""
        try:
            await asyncio.to_thread(self._storage.delete, job.id)
        except OSError as error:
            _log.warning("job_files_not_deleted", problem=str(error))
        else:
            await self._queue.free_file(job)

    async def _send_news(self, job: Job) -> None:
        """Send the end of a job to its webhook, with some attempts."""
        if job.webhook_state != "pending":
            return
        if self._webhooks is not None and job.webhook is not None:
            senders = self._senders_of.setdefault(job.submitter, asyncio.Semaphore(_SENDERS_OF_ONE))
            body = json.dumps({"type": f"job.{job.status}", "data": public_fields(job)}).encode()
            send = self._webhooks.of_key(job.key_id).send
            loop = asyncio.get_running_loop()
            for wait_s in _NEWS_WAITS_S:
                await asyncio.sleep(wait_s)
                try:
                    async with senders:
                        message = (job.webhook, job.id, body, int(time.time()))
                        await loop.run_in_executor(self._senders, send, *message)
                except NotDeliveredError as error:
                    _log.info("webhook_not_delivered", job_id=job.id, problem=str(error))
                else:
                    await self._queue.set_webhook_state(job.id, "delivered")
                    return
        await self._queue.set_webhook_state(job.id, "failed")

    async def _clean(self) -> None:
        """Delete the files of jobs that are no longer kept."""
        while True:
            try:
                deleted = await asyncio.to_thread(self._storage.delete_old, KEEP_S)
                if deleted:
                    _log.info("job_files_deleted", files=deleted)
            except OSError as error:
                _log.warning("job_files_not_deleted", problem=str(error))
            await asyncio.sleep(_CLEAN_S)


async def _in_a_thread(work: Callable[[], None]) -> None:
    """Call what blocks. A cancel waits for its end: no thread can be stopped."""
    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait({working})
        raise


def _storage_error(error: OSError) -> VoiceAgentError:
    return InvalidRequestError(
        f"the file cannot be stored: {error.strerror}; the server needs a writable folder with "
        "free space (VOICEAGENT_TTS_JOBS_STORAGE), then submit the job again",
        code=ErrorCode.STORAGE_UNAVAILABLE,
    )


def public_fields(job: Job) -> dict[str, Any]:
    """What a client may know of its job, without a link to its file and without its text."""
    result = None
    if job.result is not None:
        result = {name: value for name, value in job.result.items() if name != "name"}
    return {
        "id": job.id,
        "status": job.status.value,
        "created_at": job.created_at,
        "started_at": job.started_at,
        "finished_at": job.finished_at,
        "starts": job.starts,
        "result": result,
        "error": job.error,
        "webhook": job.webhook_state,
    }


async def _never() -> bool:
    """A job waits for nobody, so nobody can be gone."""
    return False
