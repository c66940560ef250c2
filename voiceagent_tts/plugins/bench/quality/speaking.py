"""Gets clips: speaks items through a target, or reads their recordings."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
import soxr

from voiceagent_tts.audio.pcm import pcm_to_float
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.plugins.bench.callers import speak
from voiceagent_tts.plugins.bench.quality.measures import Clip
from voiceagent_tts.plugins.bench.quality.test_sets import Item
from voiceagent_tts.plugins.bench.recorder import Recorder
from voiceagent_tts.plugins.bench.targets.target import Connection, Target
from voiceagent_tts.plugins.bench.utterance import Request, Utterance
from voiceagent_tts.plugins.recordings.file_reader import AudioLimits, read_audio_file

_RECORDING_LIMITS = AudioLimits(min_s=0.001, max_s=300.0, may_be_silent=True)


@dataclass(frozen=True, slots=True)
class TargetSpeech:
    """What a target made of items.

    Attributes:
        clips: the speech, in the order of the items.
        failures: (name of the item, code) of those without speech.
    """

    clips: list[Clip]
    failures: list[tuple[str, str]]


class AudioRecorder(Recorder):
    """Keeps the audio of an utterance, beside its measurements."""

    def __init__(self, utterance: Utterance) -> None:
        super().__init__(utterance)
        self._pieces: list[bytes] = []
        self._rate_hz = SAMPLE_RATE_HZ

    def audio(self, pcm: bytes, rate_hz: int = SAMPLE_RATE_HZ) -> None:
        """See `Recorder`."""
        super().audio(pcm, rate_hz)
        if pcm and not self.over.is_set():
            self._pieces.append(pcm)
            self._rate_hz = rate_hz

    def clip(self, item: Item) -> Clip:
        """The audio that has arrived, at 24 kHz."""
        samples = pcm_to_float(b"".join(self._pieces))
        if self._rate_hz != SAMPLE_RATE_HZ:
            samples = soxr.resample(samples, self._rate_hz, SAMPLE_RATE_HZ)
        return Clip(item, samples)


async def speak_items(
    target: Target,
    items: Sequence[Item],
    together: int,
    on_item: Callable[[], None] = lambda: None,
) -> TargetSpeech:
    """Speak every item once, `together` of them at a time; `on_item` is called after each.

    Raises:
        VoiceAgentError, OSError: the target cannot be reached at the start.
    """
    results: list[Clip | str | None] = [None] * len(items)
    waiting = iter(range(len(items)))

    async def caller(connection: Connection) -> None:
        for place in waiting:
            if not connection.is_usable:
                await connection.aclose()
                connection = await target.connect()
            results[place] = await _speak(connection, items[place])
            on_item()
        await connection.aclose()

    callers = [caller(await target.connect()) for _ in range(min(together, len(items)))]
    await asyncio.gather(*callers)
    pairs = list(zip(items, results, strict=True))
    return TargetSpeech(
        [result for _, result in pairs if isinstance(result, Clip)],
        [(item.name, result) for item, result in pairs if isinstance(result, str)],
    )


async def _speak(connection: Connection, item: Item) -> Clip | str:
    request = Request(item.text, item.language)
    recorder = AudioRecorder(Utterance(request, due=Recorder.now()))
    await speak(connection, recorder)
    failure = recorder.utterance.failure
    return recorder.clip(item) if failure is None else str(failure)


def read_clips(recordings: Iterable[tuple[Item, Path]]) -> list[Clip]:
    """Read recordings of up to five minutes.

    Raises:
        InvalidRequestError: a file cannot be read, or is not audio.
    """
    return [
        Clip(item, np.array(read_audio_file(path, _RECORDING_LIMITS))) for item, path in recordings
    ]


def write_clips(clips: Iterable[Clip], folder: Path) -> None:
    """Write each clip as `NAME.wav`; the folder is made."""
    folder.mkdir(parents=True, exist_ok=True)
    for clip in clips:
        name = "".join(each if each.isalnum() or each in "-_." else "_" for each in clip.item.name)
        soundfile.write(folder / f"{name}.wav", clip.samples, SAMPLE_RATE_HZ, subtype="PCM_16")
