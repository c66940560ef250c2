"""`voiceagent-tts batch`: speak every text of a folder to an audio file, optionally with words.

A text is spoken in sections of some minutes, one context after another, so long chapters stay
within the server's limits and a failure costs one section. Files appear under their final name only
when they are complete, so a second run skips them and continues.
"""

import asyncio
import contextlib
import hashlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Literal, get_args

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from voiceagent_tts.cli.files import (
    FileFilter,
    file_filters,
    filtered,
    write_samples,
    write_words,
)
from voiceagent_tts.cli.own_server import websocket_url
from voiceagent_tts.client import TTSClient
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, Word, WordTimestamp
from voiceagent_tts.errors import EngineError, ErrorCode, InvalidRequestError, VoiceAgentError
from voiceagent_tts.protocol.client_connection import ClientAudio
from voiceagent_tts.protocol.messages import (
    DoneMessage,
    LexiconEntries,
    ProvenanceFields,
    WarningMessage,
)
from voiceagent_tts.reading import read_file
from voiceagent_tts.replacing import replacing
from voiceagent_tts.text.punctuation import SENTENCE_ENDS
from voiceagent_tts.text.segmenter import Segmenter

AudioFormat = Literal["wav", "flac", "mp3", "ogg"]

_SUFFIXES = (".txt", ".md")
_SECTION_CHARS = 4000
"""A section ends with the first sentence after this many characters: about five minutes."""
_MAX_SECTION_CHARS = 5000
_MAX_TEXT_BYTES = 2**24  # some hundred hours of speech
_WRITE_BYTES = 10 * SAMPLE_RATE_HZ * BYTES_PER_SAMPLE
_ATTEMPTS = 3
_RETRY_WAIT_S = 1.0
_BUSY = frozenset((ErrorCode.OVERLOADED, ErrorCode.RATE_LIMITED, ErrorCode.TOO_MANY_CONTEXTS))
"""Codes that are retried without limit: other contexts, often our own, use the capacity."""


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """The command line of `batch`."""

    folder: Path
    output: Path
    audio_format: AudioFormat
    has_words: bool
    voice: str | None
    language: str | None
    instruct: str | None
    speed: float
    lexicon: LexiconEntries | None
    jobs: int
    is_forced: bool
    url: str | None
    api_key: str | None


@dataclass(frozen=True, slots=True)
class Chapter:
    """One text and its output files."""

    source: Path
    audio: Path
    words: Path | None

    @property
    def is_finished(self) -> bool:
        """Whether all output files exist."""
        return self.audio.exists() and (self.words is None or self.words.exists())


@dataclass(slots=True)
class _Report:
    """Results of a run."""

    finished: int = 0
    spoken: int = 0
    sound_s: float = 0.0
    skipped: list[str] = field(default_factory=list[str])
    ignored: list[str] = field(default_factory=list[str])
    warnings: dict[str, str] = field(default_factory=dict[str, str])
    """The server's warnings, by code."""

    def add(self, chapter: Chapter, sound_s: float) -> None:
        """Count a text that was sent to the server: without sound, it has nothing to speak."""
        if sound_s:
            self.spoken += 1
            self.sound_s += sound_s
        else:
            self.skipped.append(f"{chapter.source}: nothing in it is said")

    def write(self) -> None:
        for message in self.warnings.values():
            sys.stderr.write(f"warning: {message}\n")
        for line in self.ignored:
            sys.stderr.write(f"ignored {line}\n")
        for line in self.skipped:
            sys.stderr.write(f"skipped {line}\n")
        minutes, seconds = divmod(round(self.sound_s), 60)
        sys.stderr.write(
            f"{self.spoken} spoken ({minutes} min {seconds} s of sound), "
            f"{self.finished} finished before, {len(self.skipped)} skipped\n"
        )


def audio_format_of(name: str) -> AudioFormat:
    """Parse the name of an audio format.

    Raises:
        InvalidRequestError: the format is unknown.
    """
    formats: tuple[AudioFormat, ...] = get_args(AudioFormat)
    for known in formats:
        if name.lower() == known:
            return known
    raise InvalidRequestError(f"--format: expected one of {', '.join(formats)}; got {name}")


async def speak_folder(request: BatchRequest) -> bool:
    """Speak every unfinished text of the folder.

    Returns:
        False if a text was skipped: unreadable, not UTF-8, or with nothing to speak.

    Raises:
        InvalidRequestError: there is no text, two texts have one output file, a file cannot be
            written, or the server does not know the voice or language.
        VoiceAgentError: the server failed, also after retries.
    """
    report = _Report()
    texts = dict(_read_texts(_unfinished(request, report), report))
    _make_folder(request.output)
    if texts:
        async with (
            websocket_url(request.url, request.voice) as url,
            TTSClient(url, request.api_key) as client,
        ):
            await _speak_texts(request, client, texts, report)
    report.write()
    return not report.skipped


def find_chapters(request: BatchRequest) -> list[Chapter]:
    """List the texts of the folder by name.

    Raises:
        InvalidRequestError: there are none, or two of them have one output file.
    """
    files = [path for path in _entries(request) if _is_text(path)]
    if not files:
        raise InvalidRequestError(f"{request.folder}: expected .txt or .md files; there are none")
    places = [path.relative_to(request.folder).with_suffix("") for path in files]
    most_common, count = Counter(places).most_common(1)[0]
    if count > 1:
        alike = " and ".join(
            path.name for path, place in zip(files, places, strict=True) if place == most_common
        )
        raise InvalidRequestError(
            f"{alike} would become {most_common}.{request.audio_format}; rename all but one"
        )
    return [
        Chapter(
            path,
            request.output / f"{place}.{request.audio_format}",
            request.output / f"{place}.json" if request.has_words else None,
        )
        for path, place in zip(files, places, strict=True)
    ]


def _entries(request: BatchRequest) -> list[Path]:
    """All paths in the folder and its subfolders, sorted by name."""
    try:
        next(request.folder.iterdir(), None)  # rglob passes over a folder that cannot be read
        return sorted(request.folder.rglob("*"))
    except OSError as error:
        raise InvalidRequestError(f"{error.filename}: {error.strerror}") from error


def _is_text(path: Path) -> bool:
    return path.suffix.lower() in _SUFFIXES and not path.is_dir()


def _ignored(request: BatchRequest) -> Iterator[str]:
    """Files in the folder that are not texts, with the reason; hidden files are left out."""
    for path in _entries(request):
        if _is_text(path) or path.name.startswith("."):
            continue
        if not path.is_dir():
            yield f"{path}: expected .txt or .md"


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidRequestError(f"{path}: {error.strerror}") from error


def sections_of(text: str, language: str | None) -> list[str]:
    """Cut a text into sections, at sentence ends if possible; joined, they are the text."""
    segmenter = Segmenter(first_clause=False, language=language)
    sections = [""]
    for segment in (*segmenter.push(text), *segmenter.flush()):
        if len(sections[-1]) + len(segment.text) > _MAX_SECTION_CHARS:
            sections.append("")
        sections[-1] += segment.text
        if len(sections[-1]) >= _SECTION_CHARS and segment.text.rstrip()[-1:] in SENTENCE_ENDS:
            sections.append("")
    return [section for section in sections if section]


def _unfinished(request: BatchRequest, report: _Report) -> list[Chapter]:
    chapters = find_chapters(request)
    left = [chapter for chapter in chapters if request.is_forced or not chapter.is_finished]
    report.finished = len(chapters) - len(left)
    report.ignored.extend(_ignored(request))
    return left


def _read_texts(chapters: list[Chapter], report: _Report) -> Iterator[tuple[Chapter, str]]:
    """Yield readable chapters and their texts."""
    for chapter in chapters:
        try:
            text = read_file(chapter.source, _MAX_TEXT_BYTES).decode("utf-8-sig")
        except InvalidRequestError as error:
            report.skipped.append(error.message)
        except UnicodeDecodeError as error:
            report.skipped.append(f"{chapter.source}: is not UTF-8 (byte {error.start})")
        else:
            yield chapter, text


async def _speak_texts(
    request: BatchRequest, client: TTSClient, texts: dict[Chapter, str], report: _Report
) -> None:
    """Speak `jobs` chapters at a time; the first error cancels all of them."""
    waiting = iter(texts.items())
    filters = file_filters()
    with _progress(len(texts), sum(map(len, texts.values()))) as (add_chars, add_chapter):

        async def work() -> None:
            for chapter, text in waiting:
                with contextlib.closing(
                    _ChapterSpeaker(request, client, report.warnings, add_chars)
                ) as speaker:
                    await speaker.speak(text)
                    if speaker.samples:
                        speaker.write(chapter, filters)
                report.add(chapter, speaker.samples / SAMPLE_RATE_HZ)
                add_chapter()

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(request.jobs, len(texts))):
                    group.create_task(work())
        except* VoiceAgentError as errors:
            raise errors.exceptions[0] from None


@contextlib.contextmanager
def _progress(
    chapters: int, chars: int
) -> Iterator[tuple[Callable[[int], None], Callable[[], None]]]:
    """Show a progress bar; yields functions that add spoken characters and finished chapters."""
    columns = TextColumn("{task.fields[done]}/{task.fields[chapters]}"), BarColumn()
    console = Console(stderr=True)
    with Progress(
        *columns,
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task("", total=chars, done=0, chapters=chapters)
        done = iter(range(1, chapters + 1))
        yield (
            lambda spoken: bar.advance(task, spoken),
            lambda: bar.update(task, done=next(done)),
        )


@dataclass(slots=True)
class _Section:
    """Audio and words of one section, on its own clock."""

    pcm: bytearray = field(default_factory=bytearray)
    words: Sequence[WordTimestamp] = ()
    provenance: ProvenanceFields | None = None


class _ChapterSpeaker:
    """Speaks one chapter and collects its audio and words.

    Args:
        warnings: receives the server's warnings, by code.
        add_chars: called with the number of newly spoken characters.
    """

    def __init__(
        self,
        request: BatchRequest,
        client: TTSClient,
        warnings: dict[str, str],
        add_chars: Callable[[int], None],
    ) -> None:
        import soundfile

        self._request = request
        self._client = client
        self._warnings = warnings
        self._add_chars = add_chars
        self._buffer = BytesIO()  # written by Python at the end, so a full disk raises an error
        self._file = soundfile.SoundFile(
            self._buffer, "w", SAMPLE_RATE_HZ, channels=1, format=request.audio_format.upper()
        )
        self._words: list[WordTimestamp] = []
        self._chars = 0
        self._digest = hashlib.sha256()
        self._provenance: ProvenanceFields | None = None
        self.samples = 0

    async def speak(self, text: str) -> None:
        """Speak all of `text`.

        Raises:
            VoiceAgentError: the server has failed several times.
        """
        for part in sections_of(text, self._request.language):
            section = await self._speak_with_retries(part)
            for start in range(0, len(section.pcm), _WRITE_BYTES):
                write_samples(self._file, bytes(section.pcm[start : start + _WRITE_BYTES]))
                await asyncio.sleep(0)  # let the other chapters continue
            self._digest.update(section.pcm)
            self._provenance = section.provenance
            self._words += (self._placed(word) for word in section.words)
            self.samples += len(section.pcm) // BYTES_PER_SAMPLE
            self._chars += len(part)

    def write(self, chapter: Chapter, filters: list[FileFilter]) -> None:
        """Write the files of the chapter, the audio last.

        Raises:
            InvalidRequestError: a file cannot be written; no partial file remains.
        """
        self._file.close()  # writes what is missing of the file's header and end
        _make_folder(chapter.audio.parent)
        if chapter.words is not None:
            write_words(chapter.words, self._words)
        data = filtered(
            self._buffer.getvalue(),
            chapter.audio.suffix,
            filters,
            self._provenance,
            self._digest.hexdigest(),
        )
        with replacing(chapter.audio) as path:
            path.write_bytes(data)

    def close(self) -> None:
        """Release the audio; idempotent."""
        self._file.close()

    async def _speak_with_retries(self, text: str) -> _Section:
        """Speak a section; retry errors that may be temporary."""
        failures = 0
        while True:
            try:
                return await self._speak(text)
            except VoiceAgentError as error:
                failures += error.code not in _BUSY
                if failures == _ATTEMPTS or not error.is_retryable:
                    raise
                await asyncio.sleep((error.retry_after_ms or 0) / 1000 or _RETRY_WAIT_S)

    async def _speak(self, text: str) -> _Section:
        request, section, counted, reason = self._request, _Section(), 0, ""
        opening = self._client.open(
            voice=request.voice,
            language=request.language,
            instruct=request.instruct,
            speed=request.speed,
            seed=0,
            lexicon=request.lexicon,
            max_lead_s=0,
            priority="batch",
        )
        try:
            async with await opening as context:
                await context.send_text(text)
                await context.end()
                async for event in context:
                    match event:
                        case ClientAudio():
                            section.pcm += event.pcm
                        case WordTimestamp():
                            self._add_chars(event.word.char_end - counted)
                            counted = event.word.char_end
                        case WarningMessage():
                            self._warnings[event.code] = event.message
                        case DoneMessage():
                            reason, section.provenance = event.reason, event.provenance
                        case _:
                            pass
                section.words = context.words
            if reason != "complete":
                raise EngineError(f"the server ended a text early ({reason})")
        except BaseException:
            self._add_chars(-counted)  # a retry counts these characters again
            raise
        self._add_chars(len(text) - counted)
        return section

    def _placed(self, timestamp: WordTimestamp) -> WordTimestamp:
        """Move a timestamp to the chapter's clock and text."""
        word = timestamp.word
        placed = Word(word.text, word.char_start + self._chars, word.char_end + self._chars)
        return replace(timestamp.later(self.samples), word=placed)
