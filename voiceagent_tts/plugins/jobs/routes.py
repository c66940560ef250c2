"""`/v1/audio/jobs`: texts that are spoken later, whose files are fetched by a signed link.

Jobs need Redis (`redis` in the settings), which keeps them while servers come and go.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import structlog
from fastapi import APIRouter, Request
from fastapi.responses import FileResponse
from pydantic import Field

from voiceagent_tts.config import Settings
from voiceagent_tts.errors import ErrorCode, InvalidRequestError, OverloadedError
from voiceagent_tts.plugins.jobs.queue import Job, JobLimits, JobQueue, JobStatus
from voiceagent_tts.plugins.jobs.runner import KEEP_S, PATH, JobRunner, public_fields
from voiceagent_tts.plugins.jobs.storage import JobStorage
from voiceagent_tts.plugins.jobs.webhook import Webhooks
from voiceagent_tts.plugins.redis.connection import away_errors, connect
from voiceagent_tts.plugins.speech.containers import CONTENT_TYPES
from voiceagent_tts.plugins.speech.request import Served, SpeechRequest
from voiceagent_tts.plugins.speech.speaking import check_text
from voiceagent_tts.server.auth import caller_of
from voiceagent_tts.server.state import ServerState

FILES_PATH = f"{PATH}/files"
"""Links to files begin with this path; their signatures replace keys."""
_LINK_S = 3600
_MAX_HOST_CHARS = 255
_RETRY_S = 1.0
"""Interval at which a Redis that was away at the start is tried again."""

router = APIRouter(tags=["jobs"])

_log = structlog.get_logger(__name__)


class JobRequest(SpeechRequest):
    """The body: the fields of `POST /v1/audio/speech`, and where to send news of the end."""

    webhook: str | None = Field(None, description="Address that gets a message when the job ends.")


class Jobs:
    """The jobs of one server."""

    def __init__(self, settings: Settings, state: ServerState) -> None:
        self._settings = settings
        self._state = state
        self._redis = None if settings.redis is None else connect(settings.redis)
        secret = settings.webhook_secret
        self.webhooks = (
            None
            if secret is None
            else Webhooks(secret.get_secret_value().encode(), settings.webhook_private)
        )
        self._queue: JobQueue | None = None
        self.storage: JobStorage | None = None
        """Keeps the files; None without jobs, or before Redis was reached."""
        self._runner: JobRunner | None = None
        self._opening: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Open the storage, and begin to speak jobs, as soon as Redis can be reached.

        A server whose Redis is away speaks all the same; only its jobs are refused meanwhile.
        """
        if self._redis is None:
            return
        self._queue = JobQueue(self._redis, KEEP_S, JobLimits())
        try:
            await self._open(self._queue)
        except away_errors():
            _log.warning("jobs_wait_for_redis")
            self._opening = asyncio.create_task(self._open_later(self._queue))

    async def _open(self, queue: JobQueue) -> None:
        folder = self._settings.jobs_storage.expanduser()
        self.storage = JobStorage(folder, await queue.secret())
        self._runner = JobRunner(self._state, queue, self.storage, self.webhooks)
        self._runner.start()

    async def _open_later(self, queue: JobQueue) -> None:
        while self._runner is None:
            await asyncio.sleep(_RETRY_S)
            with contextlib.suppress(*away_errors()):
                await self._open(queue)
        _log.info("jobs_opened")

    async def stop(self) -> None:
        """Speak no more jobs, and give those in progress to other servers; idempotent."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait({self._opening})
        if self._runner is not None:
            await self._runner.close()

    async def close(self) -> None:
        """Stop, and close the connection."""
        await self.stop()
        if self._redis is not None:
            await self._redis.aclose()

    @contextlib.asynccontextmanager
    async def queue(self) -> AsyncIterator[JobQueue]:
        """Use the queue within the block.

        Raises:
            InvalidRequestError: this server has no jobs.
            OverloadedError: Redis cannot be reached.
        """
        if self._queue is None:
            raise InvalidRequestError(
                "this server has no jobs: set VOICEAGENT_TTS_REDIS", code=ErrorCode.NOT_SUPPORTED
            )
        if self._runner is None:
            raise _redis_away()
        try:
            yield self._queue
        except away_errors() as error:
            raise _redis_away() from error

    async def delete_file(self, job: Job) -> None:
        """Delete the file of a job.

        Raises:
            InvalidRequestError: it cannot be deleted (`storage_unavailable`).
        """
        if self.storage is None:
            return
        try:
            await asyncio.to_thread(self.storage.delete, job.id)
        except OSError as error:
            raise InvalidRequestError(
                f"the file of the job cannot be deleted: {error.strerror}; try again later",
                code=ErrorCode.STORAGE_UNAVAILABLE,
            ) from error

    def secret_of(self, job: Job) -> dict[str, str]:
        """What a job's news is signed with, where its key has a secret of its own."""
        if self.webhooks is None or job.webhook is None or job.key_id is None:
            return {}
        return {"webhook_secret": self.webhooks.of_key(job.key_id).shown_secret}

    def shown(self, job: Job) -> dict[str, Any]:
        """What a client sees of its job, with a new link to its file."""
        fields = public_fields(job)
        if job.result is not None and self.storage is not None:
            expires_at = int(time.time()) + _LINK_S
            url = self.storage.link(job.result["name"], job.base_url, expires_at)
            fields["result"] |= {"url": url, "url_expires_at": expires_at}
        return fields


@router.post(PATH, status_code=202)
async def submit_job(request: Request, body: JobRequest) -> dict[str, Any]:
    """Accept a text that is spoken later; the answer has its id, and the secret of its news."""
    jobs: Jobs = request.app.state.jobs
    _check(request.app.state.server, jobs, body, caller_of(request.scope).key_id)
    fields = body.model_dump(exclude={"webhook"}, exclude_unset=True)
    job = Job.new(fields, caller_of(request.scope), _base_url_of(request), body.webhook)
    async with jobs.queue() as queue:
        await queue.submit(job)
    return jobs.shown(job) | jobs.secret_of(job)


@router.get(PATH + "/{job_id}")
async def show_job(request: Request, job_id: str) -> dict[str, Any]:
    """Report where a job stands; a job that is done has a link to its file, for an hour."""
    jobs: Jobs = request.app.state.jobs
    return jobs.shown(await _job_of(request, job_id))


@router.delete(PATH + "/{job_id}")
async def cancel_job(request: Request, job_id: str) -> dict[str, Any]:
    """Cancel a job; one that is done or has failed is deleted, with its file."""
    jobs: Jobs = request.app.state.jobs
    job = await _job_of(request, job_id)
    async with jobs.queue() as queue:
        await queue.cancel(job)
        job = await _job_of(request, job_id)
        if job.status is not JobStatus.CANCELLED:
            await jobs.delete_file(job)
            await queue.delete(job)
    return public_fields(job)


# Not in the schema: clients get whole links, whose signature replaces a key.
@router.get(FILES_PATH + "/{name}", response_class=FileResponse, include_in_schema=False)
async def fetch_file(request: Request, name: str, expires: int, signature: str) -> FileResponse:
    """Download the file of a job by the link of `GET /v1/audio/jobs/{job_id}`; needs no key."""
    jobs: Jobs = request.app.state.jobs
    storage = jobs.storage
    if storage is None:
        raise InvalidRequestError("this server keeps no files", code=ErrorCode.NOT_FOUND)
    path = await asyncio.to_thread(storage.open_link, name, expires, signature)
    types: dict[str, str] = {**CONTENT_TYPES}
    return FileResponse(path, media_type=types[path.suffix.removeprefix(".")])


def _base_url_of(request: Request) -> str:
    """The address of this server that the client has used, which its job keeps."""
    if len(request.base_url.netloc) > _MAX_HOST_CHARS:
        raise InvalidRequestError(
            f"Host: expected at most {_MAX_HOST_CHARS} characters, got more",
            code=ErrorCode.INVALID_PARAM,
        )
    return str(request.base_url)


def _check(state: ServerState, jobs: Jobs, body: JobRequest, key_id: str | None) -> None:
    """Refuse at once what would fail later."""
    check_text(state, body.input)
    state.synthesizer.check(replace(body.file_options(Served.to(state, key_id)), owner=key_id))
    if body.webhook is None:
        return
    if jobs.webhooks is None:
        raise InvalidRequestError(
            "webhook: expected none, as this server has no secret to sign messages with; set "
            "VOICEAGENT_TTS_WEBHOOK_SECRET",
            code=ErrorCode.NOT_SUPPORTED,
        )
    jobs.webhooks.check(body.webhook)


async def _job_of(request: Request, job_id: str) -> Job:
    """A job of the caller's key. Those of others do not exist for it."""
    jobs: Jobs = request.app.state.jobs
    async with jobs.queue() as queue:
        job = await queue.get(job_id)
    if job is None or job.key_id != caller_of(request.scope).key_id:
        raise InvalidRequestError(
            "expected the id of a job of this key that is still kept", code=ErrorCode.NOT_FOUND
        )
    return job


def _redis_away() -> OverloadedError:
    return OverloadedError("the queue of jobs cannot be reached", retry_after_ms=2000)
