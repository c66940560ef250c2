"""An upstream as an engine: segments in, audio out, as far as credit allows.

Each segment is one request. The next one is sent when the audio of the one before has arrived, so a
listener hears no gap, and a context has one request at a time. Word times are left to the aligners.
This module knows no processes; one thread must use it.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from voiceagent_tts.audio.levels import leading_silence_samples
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ
from voiceagent_tts.errors import ErrorCode, InvalidRequestError, OverloadedError
from voiceagent_tts.plugins.upstream.download import Download
from voiceagent_tts.plugins.upstream.requests import Upstream
from voiceagent_tts.plugins.upstream.speech_api import SpeechRequest
from voiceagent_tts.plugins.upstream.speech_http import OpenAISpeech
from voiceagent_tts.seam.commands import Append, Prepare, Submit
from voiceagent_tts.seam.engine import Inbox, Outbox
from voiceagent_tts.seam.events import AudioStep, Capabilities, ContextAudio, VoiceDetails
from voiceagent_tts.seam.segment_rows import SegmentRow, SegmentRows
from voiceagent_tts.text.language import CODES
from voiceagent_tts.text.readings import said
from voiceagent_tts.text.words import is_spoken

_SILENCE = 33  # of 32,767: -60 dBFS
_CHUNK_SAMPLES = SAMPLE_RATE_HZ
_POLL_S = 0.005
"""Time until a step looks again for audio."""
_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class _QueuedSegment:
    """A segment that waits to be spoken; its text is empty if there is nothing to speak."""

    text: str
    char_end: int
    language: str | None


@dataclass(slots=True, kw_only=True)
class _Row(SegmentRow):
    """The state of one context.

    Attributes:
        queue: segments that are not spoken to their end.
        downloads: their audio, as far as it was asked for, in the order of `queue`.
        has_begun: whether its listener hears it, so that no limit ends it any more.
    """

    queue: deque[_QueuedSegment] = field(default_factory=deque[_QueuedSegment])
    downloads: deque[Download] = field(default_factory=deque[Download])
    has_begun: bool

    @property
    def next_to_ask(self) -> _QueuedSegment | None:
        """The segment whose audio is asked for next; None while another one arrives."""
        if len(self.downloads) == len(self.queue) or not self.has_credit:
            return None
        if self.downloads and not self.downloads[-1].has_arrived:
            return None
        return self.queue[len(self.downloads)]

    @property
    def is_waiting(self) -> bool:
        """Whether audio may arrive without a command."""
        return self.has_credit and bool(self.queue)

    def take(self) -> bytes:
        """Remove and return the next audio of the first segment, as far as credit allows."""
        samples = min(_CHUNK_SAMPLES, self.samples_wanted - self.end_sample)
        pcm = self.downloads[0].take(max(0, samples))
        if self.end_sample or self.options.keeps_silence:
            return pcm
        return pcm[leading_silence_samples(pcm, _SILENCE) * BYTES_PER_SAMPLE :]

    def close(self) -> None:
        """Cancel the requests."""
        for download in self.downloads:
            download.cancel()


class CharBudget:
    """The characters that may be sent upstream within a day (24 hours, from the first one).

    The limit refuses what begins. What has begun is spent beyond it: a reply that breaks off costs
    its listener more than its last characters.

    Args:
        max_chars: the limit; None for no limit.
        clock: seconds that never go back.

    Attributes:
        total: characters sent since the start.
    """

    def __init__(self, max_chars: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.total = 0
        self._max_chars = max_chars
        self._clock = clock
        self._used = 0
        self._begun_at: float | None = None

    def check(self, chars: int) -> None:
        """Check that so many characters may be spent.

        Raises:
            OverloadedError: they are more than the rest of the day's limit.
        """
        now = self._clock()
        begun_at = self._begin_day(now)
        if self._max_chars is not None and self._used + chars > self._max_chars:
            raise OverloadedError(
                f"the limit of {self._max_chars} characters a day for the upstream is reached; "
                "raise VOICEAGENT_TTS_UPSTREAM_CHARS_PER_DAY",
                retry_after_ms=round(1000 * (begun_at + _DAY_S - now)),
            )

    def spend(self, chars: int) -> None:
        """Count characters, also beyond the limit."""
        self._begin_day(self._clock())
        self._used += chars
        self.total += chars

    def _begin_day(self, now: float) -> float:
        """Return when the day began, which is now if the one before it is over."""
        if self._begun_at is None or now - self._begun_at >= _DAY_S:
            self._begun_at, self._used = now, 0
        return self._begun_at


class UpstreamEngine:
    """Implements `seam.engine.Engine` with another server's speech.

    It has no use for `seed`, `speed` and `initial_frames`, and ignores them.

    Args:
        inbox: source of commands.
        outbox: destination of events.
        upstream: the requests.
        service: what the upstream can do, and its names.
        voices: names of the voices, the default first.
        max_rows: maximum number of open contexts, and so of requests.
        budget: limits the characters that are sent.
    """

    def __init__(
        self,
        inbox: Inbox,
        outbox: Outbox,
        upstream: Upstream,
        service: OpenAISpeech,
        voices: Sequence[str],
        *,
        max_rows: int,
        budget: CharBudget,
    ) -> None:
        self._outbox = outbox
        self._upstream = upstream
        self._service = service
        self._voices = tuple(voices)
        self._budget = budget
        self._rows = SegmentRows(
            inbox,
            outbox,
            max_rows=max_rows,
            engine_name="the upstream",
            open_row=self._open_row,
            add_text=self._add_text,
            prepare=_ignore,
            takes_instruct=True,
        )

    @property
    def capabilities(self) -> Capabilities:
        """Voices and features of the upstream, as far as its API tells."""
        return Capabilities(
            engine="openai",
            model=self._service.model,
            has_native_words=False,
            text_feeding=("segment",),
            languages=CODES,
            voices=self._voices,
            max_rows=self._rows.max_rows,
            takes_instruct=True,
            revision=self._service.place,
            voice_details=tuple(VoiceDetails(name, "preset") for name in self._voices),
        )

    @property
    def rows_used(self) -> int:
        """Number of open contexts."""
        return len(self._rows)

    @property
    def metrics(self) -> dict[str, float]:
        """Totals of requests and characters."""
        counts = self._upstream.counts
        return {
            "upstream_requests_total": counts.requests,
            "upstream_retries_total": counts.retries,
            "upstream_failures_total": counts.failures,
            "upstream_chars_total": self._budget.total,
        }

    def step(self) -> float | None:
        """Handle commands, send what has arrived, and ask for more.

        Returns:
            A short time while audio may arrive, else None.
        """
        self._rows.handle_commands()
        for row in sorted(self._rows, key=lambda row: row.urgency):
            with self._rows.failing(row.context):
                self._advance(row)
        return _POLL_S if any(row.is_waiting for row in self._rows) else None

    def close(self) -> None:
        """Drop every row, and close the connections."""
        self._rows.clear()
        self._upstream.close()

    def _open_row(self, command: Submit) -> _Row:
        known = {name.casefold(): name for name in self._voices}
        voice = known.get(command.voice.casefold())
        if voice is None:
            raise InvalidRequestError(
                f"expected a voice of the upstream, got {command.voice[:64]!r}",
                code=ErrorCode.INVALID_VOICE,
            )
        return _Row(
            context=command.context,
            voice_name=voice,
            options=command.options,
            has_begun=command.continues,
        )

    def _add_text(self, row: _Row, command: Submit | Append) -> None:
        if command.text:
            spoken = said(command.text, command.char_base, command.readings).text
            text = spoken if is_spoken(spoken) else ""
            row.queue.append(
                _QueuedSegment(text, command.char_base + len(command.text), command.language)
            )
        row.expects_text = command.more
        self._report_progress(row)

    def _advance(self, row: _Row) -> None:
        if (segment := row.next_to_ask) is not None:
            row.downloads.append(self._ask(row, segment))
        while row.downloads and row.has_credit:
            download = row.downloads[0]
            if pcm := row.take():
                chunk = ContextAudio(row.context, row.append(pcm))
                self._outbox(AudioStep((chunk,)))
            elif not download.is_spent:
                return
            elif download.error is not None:
                raise download.error
            else:
                row.downloads.popleft()
                self._end_segment(row)
                self._report_progress(row)

    def _ask(self, row: _Row, segment: _QueuedSegment) -> Download:
        if not segment.text:
            silent = Download(SAMPLE_RATE_HZ)
            silent.complete()
            return silent
        if not row.has_begun:
            self._budget.check(len(segment.text))
            row.has_begun = True
        self._budget.spend(len(segment.text))
        return self._upstream.speak(
            SpeechRequest(segment.text, row.voice_name, row.options.instruct, segment.language)
        )

    def _report_progress(self, row: _Row) -> None:
        """Report what is complete: segments without anything to speak, and the context."""
        while row.queue and not row.queue[0].text and not row.downloads:
            self._end_segment(row)
        if not row.queue and not row.expects_text and row in self._rows:
            self._rows.end(row)

    def _end_segment(self, row: _Row) -> None:
        self._rows.end_segment(row, row.queue.popleft().char_end)


def _ignore(command: Prepare) -> None:
    """Nothing can be computed ahead."""
