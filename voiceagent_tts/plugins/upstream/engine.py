"""An upstream as an engine: segments in, audio out, as far as credit allows.

Each segment is one request. The next one is sent when the audio of the one before has arrived, so a
listener hears no gap, and a context has one request at a time. A pause that the upstream leaves out
between two of them is added. Word times are left to the aligners. This module knows no processes;
one thread must use it.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from voiceagent_tts.audio.levels import leading_silence_samples
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ
from voiceagent_tts.errors import ErrorCode, InvalidRequestError, OverloadedError
from voiceagent_tts.plugins.upstream.download import Download
from voiceagent_tts.plugins.upstream.pauses import QuietEnd, usual_pause_samples
from voiceagent_tts.plugins.upstream.requests import Upstream
from voiceagent_tts.plugins.upstream.speech_api import SpeechRequest
from voiceagent_tts.plugins.upstream.speech_http import OpenAISpeech
from voiceagent_tts.seam.commands import Append, Submit
from voiceagent_tts.seam.engine import Inbox, Outbox
from voiceagent_tts.seam.events import Capabilities, VoiceDetails
from voiceagent_tts.seam.segment_engine import SegmentEngine, SegmentRow
from voiceagent_tts.text.language import CODES
from voiceagent_tts.text.readings import said
from voiceagent_tts.text.words import is_spoken

_SILENCE = 33  # of 32,767: -60 dBFS
_CHUNK_SAMPLES = SAMPLE_RATE_HZ
_DAY_S = 86_400.0


@dataclass(slots=True)
class _Segment:
    """A segment that is not spoken to its end.

    Attributes:
        segment_end: end of the segment in the context's text.
        download: its audio; None before it was asked for.
        quiet_end: the end of what was taken of it, with the pause that was added.
    """

    text: str
    segment_end: int
    download: Download | None = None
    quiet_end: QuietEnd = field(default_factory=QuietEnd)

    words = ()

    @property
    def is_silent(self) -> bool:
        return not is_spoken(self.text)


@dataclass(slots=True, kw_only=True)
class _Row(SegmentRow[_Segment]):
    """The state of one context.

    Attributes:
        has_begun: whether its listener hears it, so that no limit ends it any more.
        trims_lead: whether the silence before the next sound is left out.
    """

    has_begun: bool
    trims_lead: bool

    @property
    def can_speak(self) -> bool:
        return False  # audio comes when it comes

    @property
    def next_to_ask(self) -> _Segment | None:
        """The segment whose audio is asked for next; None while another one arrives."""
        for segment in self.queue:
            if segment.download is None and not segment.is_silent:
                return segment
            if segment.download is not None and not segment.download.has_arrived:
                return None
        return None

    def take(self) -> None:
        """Move audio that has arrived to `unsent`, as far as credit allows.

        Raises:
            VoiceAgentError: the rest of the first segment will not come.
        """
        segment = self.queue[0]
        if (download := segment.download) is None:
            return
        pcm = download.take(min(_CHUNK_SAMPLES, self.samples_wanted - self.end_sample))
        if not pcm and download.is_spent:
            if download.error is not None:
                raise download.error
            pcm = self._missing_pause(segment)
            self.is_said = not pcm
        elif self.trims_lead:
            pcm = self._without_lead(pcm)
        segment.quiet_end.push(pcm)
        self.unsent = memoryview(pcm)

    def _without_lead(self, pcm: bytes) -> bytes:
        sound = pcm[leading_silence_samples(pcm, _SILENCE) * BYTES_PER_SAMPLE :]
        self.trims_lead = not sound
        return sound

    def _missing_pause(self, segment: _Segment) -> bytes:
        """What is missing of the pause after a segment; the next sound then follows it at once."""
        usual = usual_pause_samples(segment.text)
        if not (usual and self.end_sample and self.has_more):
            return b""
        self.trims_lead = True
        return bytes(max(0, usual - segment.quiet_end.samples) * BYTES_PER_SAMPLE)

    def close(self) -> None:
        """Cancel the requests."""
        for segment in self.queue:
            if segment.download is not None:
                segment.download.cancel()


class CharBudget:
    """The characters that may be sent upstream within a day (24 hours, from the first one).

    The limit refuses what begins. What has begun is spent beyond it: a reply that breaks off costs
    its listener more than its last characters.

    Args:
        max_chars: the limit; None for no limit.

    Attributes:
        total: characters sent since the start.
    """

    def __init__(self, max_chars: int | None) -> None:
        self.total = 0
        self._max_chars = max_chars
        self._used = 0
        self._begun_at: float | None = None

    def check(self, chars: int) -> None:
        """Check that so many characters may be spent.

        Raises:
            OverloadedError: they are more than the rest of the day's limit.
        """
        now = time.monotonic()
        begun_at = self._begin_day(now)
        if self._max_chars is not None and self._used + chars > self._max_chars:
            raise OverloadedError(
                "no more text of this day can be spoken with this voice; try again later",
                retry_after_ms=round(1000 * (begun_at + _DAY_S - now)),
            )

    def spend(self, chars: int) -> None:
        """Count characters, also beyond the limit."""
        self._begin_day(time.monotonic())
        self._used += chars
        self.total += chars

    def _begin_day(self, now: float) -> float:
        """Return when the day began, which is now if the one before it is over."""
        if self._begun_at is None or now - self._begun_at >= _DAY_S:
            self._begun_at, self._used = now, 0
        return self._begun_at


class UpstreamEngine(SegmentEngine[_Row]):
    """Implements `seam.engine.Engine` with another server's speech.

    It has no use for `seed`, `speed` and `initial_frames`, and ignores them.
    """

    takes_instruct = True
    poll_s = 0.005

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
        super().__init__(inbox, outbox, name="the upstream", max_rows=max_rows)
        self._upstream = upstream
        self._service = service
        self._voices = tuple(voices)
        self._budget = budget

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
            max_rows=self._max_rows,
            takes_instruct=True,
            has_pauses=True,
            revision=self._service.address,
            voice_details=tuple(VoiceDetails(name, "preset") for name in self._voices),
        )

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

    def close(self) -> None:
        """Drop every row, and close the connections."""
        super().close()
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
            trims_lead=not command.options.keeps_silence,
        )

    def _pieces(self, row: _Row, command: Submit | Append) -> list[_Segment]:
        spoken = said(command.text, command.char_base, command.readings).text
        return [_Segment(spoken, command.char_base + len(command.text))]

    def _make_audio(self) -> None:
        """Ask for audio, and take what has arrived."""
        for row in self._by_urgency(row for row in self._rows.values() if row.wants_audio):
            with self._failing(row.context):
                if (segment := row.next_to_ask) is not None:
                    self._ask(row, segment)
                row.take()

    def _ask(self, row: _Row, segment: _Segment) -> None:
        if not row.has_begun:
            self._budget.check(len(segment.text))
            row.has_begun = True
        self._budget.spend(len(segment.text))
        segment.download = self._upstream.speak(
            SpeechRequest(segment.text, row.voice_name, row.options.instruct)
        )
