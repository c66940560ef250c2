"""A driver that steps Pocket TTS over a model with random weights."""

import time
from pathlib import Path

from testbed.espeak_driving import UNLIMITED
from testbed.pocket import SMALL_MODEL
from voiceagent_tts.pocket.engine import PocketEngine
from voiceagent_tts.pocket.states import PocketModel, VoiceStates
from voiceagent_tts.seam.commands import Command, Credit, SpeechOptions, Submit
from voiceagent_tts.seam.events import AudioStep, Event
from voiceagent_tts.voices import VoiceFolder

_LONGEST_WAIT_S = 60.0


class Driver:
    """An engine with an inbox that a test fills and a list of all its events.

    Args:
        model: its model.
        clones: folder of cloned voices.
        rows: maximum number of contexts at a time.
        threads: rows that are computed at the same time.
    """

    def __init__(
        self, model: PocketModel, clones: Path, *, rows: int = 4, threads: int = 2
    ) -> None:
        self.events: list[Event] = []
        self._arrivals: list[Command] = []
        self.engine = PocketEngine(
            self._inbox,
            self.events.append,
            [model],
            VoiceStates((SMALL_MODEL,), VoiceFolder(clones)),
            max_rows=rows,
            threads=threads,
        )

    def _inbox(self) -> list[Command]:
        arrived, self._arrivals = self._arrivals, []
        return arrived

    def send(self, *commands: Command) -> None:
        """Queue `commands` for the next step."""
        self._arrivals += commands

    def step(self, *commands: Command) -> list[Event]:
        """Send `commands`, take one step, and return its events."""
        before = len(self.events)
        self.send(*commands)
        self.engine.step()
        return self.events[before:]

    def run(self, *commands: Command) -> list[Event]:
        """Send `commands`, step until there is no more work, and return the new events."""
        before = len(self.events)
        self.send(*commands)
        deadline = time.monotonic() + _LONGEST_WAIT_S
        while (wait_s := self.engine.step()) is not None:
            assert time.monotonic() < deadline, "the engine does not come to an end"
            time.sleep(wait_s)  # the engine itself asks for it, while a voice is loaded
        return self.events[before:]


def submit(
    context: int,
    text: str = "Hello there.",
    *,
    voice: str = "alba",
    more: bool = False,
    credit: int = UNLIMITED,
    options: SpeechOptions | None = None,
) -> tuple[Submit, Credit]:
    """Commands that start a context with credit for `credit` samples."""
    options = options or SpeechOptions()
    return (
        Submit(context, text, 0, more, voice, "en", options=options),
        Credit(context, 0.0, credit),
    )


def samples_of(events: list[Event], context: int) -> int:
    """Count the samples of a context; its chunks must be contiguous."""
    return len(pcm_of(events, context)) // 2


def pcm_of(events: list[Event], context: int) -> bytes:
    """Return all PCM of a context; its chunks must be contiguous."""
    pcm = b""
    for event in events:
        for row in event.rows if isinstance(event, AudioStep) else ():
            if row.context == context:
                assert row.chunk.start_sample * 2 == len(pcm)
                pcm += row.chunk.pcm
    return pcm
