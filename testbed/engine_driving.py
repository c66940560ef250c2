"""Drive the engine step by step over a tiny checkpoint."""

import tempfile
from collections.abc import Iterable
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from testbed.linked_models import link_with_few_codebooks
from testbed.parity_reference import REFERENCE
from testbed.segment_driving import credit, pcm_of
from voiceagent_tts.clones import VoiceFolder
from voiceagent_tts.core import FRAME_S
from voiceagent_tts.engine.engine import Qwen3Engine
from voiceagent_tts.engine.runner import Runner, StepCost
from voiceagent_tts.engine.sizes import Sizes
from voiceagent_tts.engine.voice_cache import VoiceCache
from voiceagent_tts.model.checkpoint import Checkpoint, load_checkpoint
from voiceagent_tts.model.codec import Codec, load_codec
from voiceagent_tts.seam.commands import Command, Credit, SpeechOptions, Submit
from voiceagent_tts.seam.events import Done, Event, Failed

__all__ = ["CUSTOM_VOICE", "MAX_FRAMES", "Driver", "last_of", "load", "pcm_of"]

CUSTOM_VOICE = "custom_voice-1b7"

_CAPACITY = 1024
MAX_FRAMES = 24
"""Frame limit of a run; random weights rarely emit the end-of-speech code."""


def load(
    name: str = CUSTOM_VOICE, max_frames: int = MAX_FRAMES, *, is_packed: bool = True
) -> tuple[Checkpoint, Codec]:
    """Return a checkpoint whose runs have at most `max_frames` frames, and its codec.

    The CustomVoice model has few codebooks here, which makes its steps several times faster. Its
    weights are laid out as on a GPU unless they are packed for a CPU.
    """
    checkpoint, codec = _load(name, is_packed)
    generation = replace(checkpoint.generation, max_new_tokens=max_frames)
    return replace(checkpoint, generation=generation), codec


@cache
def _load(name: str, is_packed: bool) -> tuple[Checkpoint, Codec]:
    if name != CUSTOM_VOICE:  # the voices of a Base model have codes of all codebooks
        return _read(REFERENCE / name, is_packed)
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / name
        link_with_few_codebooks(REFERENCE / name, folder)
        return _read(folder, is_packed)


def _read(folder: Path, is_packed: bool) -> tuple[Checkpoint, Codec]:
    return load_checkpoint(folder, is_packed=is_packed), load_codec(folder, is_packed=is_packed)


class Driver:
    """An engine with an inbox that a test fills and a list of all its events.

    Args:
        model: name of a checkpoint.
        rows: maximum number of contexts at a time.
        voices: folder of cloned voices.
        parts: checkpoint and codec to use instead of `model`.
        pages: number of KV pages; by default enough for all rows.
        sizes: sizes of passes and codec calls; by default none are padded.
        step_s: seconds by which each step advances the engine's clock. With a frame's length the
            engine just keeps up with speech, so frames are decoded one by one.
        costs: measured costs of a warm-up, for the scheduler.
    """

    def __init__(
        self,
        model: str = CUSTOM_VOICE,
        rows: int = 4,
        voices: Path | None = None,
        parts: tuple[Checkpoint, Codec] | None = None,
        pages: int | None = None,
        sizes: Sizes | None = None,
        step_s: float = FRAME_S,
        costs: tuple[StepCost, ...] = (),
    ) -> None:
        checkpoint, codec = parts or load(model)
        self.events: list[Event] = []
        self.now = 0.0
        self._step_s = step_s
        self._commands: list[Command] = []
        self.voices = VoiceCache(checkpoint.config, VoiceFolder(voices) if voices else None)
        self.runner = Runner(checkpoint, codec, rows, _CAPACITY, pages=pages, sizes=sizes)
        self.runner.costs = costs
        self.engine = Qwen3Engine(
            self._take,
            self.events.append,
            checkpoint,
            self.runner,
            self.voices,
            model,
            clock=lambda: self.now,
        )

    def _take(self) -> list[Command]:
        self.now += self._step_s  # the engine reads commands once per step
        commands, self._commands = self._commands, []
        return commands

    def send(self, *commands: Command) -> None:
        self._commands.extend(commands)

    def run(self, *commands: Command, steps: int = 3000) -> list[Event]:
        """Send `commands`, step until there is no more work, and return the new events."""
        before = len(self.events)
        self.send(*commands)
        for _ in range(steps):
            if self.engine.step() is None:
                return self.events[before:]
        raise AssertionError(f"still busy after {steps} steps")

    def open(self, context: int, text: str, **options: Any) -> tuple[Submit, Credit]:
        """Return the commands of a context that speaks `text` with unlimited credit."""
        voice = next(iter(self.engine.capabilities.voices), "")
        names = {field.name for field in fields(SpeechOptions)}
        speech: dict[str, Any] = {"seed": 7} | {
            name: options.pop(name) for name in names & options.keys()
        }
        given: dict[str, Any] = {"more": False, "voice": voice, "language": "en"} | options
        submit = Submit(context, text, 0, options=SpeechOptions(**speech), **given)
        return submit, credit(context)


def last_of(events: Iterable[Event], context: int) -> Event:
    ends = [e for e in events if isinstance(e, (Done, Failed)) and e.context == context]
    assert len(ends) == 1
    return ends[0]
