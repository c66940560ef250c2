"""Step the rows of a tiny model by hand, and collect the audio of each."""

from dataclasses import dataclass, field

import torch

from testbed.engine_driving import CUSTOM_VOICE, load
from voiceagent_tts.engine.runner import Runner
from voiceagent_tts.model.prompt import Preset, Prompt, PromptBuilder
from voiceagent_tts.model.sampling import SamplingParams, sampling_params

TEXT = "The quick brown fox jumps over the lazy dog."


def prompt_of(text: str = TEXT, *, is_streaming: bool = True) -> Prompt:
    """Return a prompt with a preset voice."""
    checkpoint, _ = load(CUSTOM_VOICE)
    builder = PromptBuilder(checkpoint.config, checkpoint.tokenizer)
    return builder.build(text, Preset("Ryan"), "en", is_streaming=is_streaming)


def sampling(seed: int = 7) -> SamplingParams:
    """Return the sampling parameters that the checkpoint recommends."""
    return sampling_params(load(CUSTOM_VOICE)[0].generation, seed)


@dataclass
class Spoken:
    """Output of a row."""

    codes: list[int] = field(default_factory=list)
    pcm: bytes = b""
    has_ended: bool = False


@dataclass
class Listener:
    """A runner and the output of each of its rows."""

    runner: Runner
    rows: dict[int, Spoken] = field(default_factory=dict)

    def start(self, row: int, text: str = TEXT, seed: int = 7, max_frames: int = 20) -> None:
        """Start a row that speaks a whole text."""
        self.runner.start(row, prompt_of(text), sampling(seed), max_frames, is_open=False)
        self.rows[row] = Spoken()

    def cancel(self, row: int) -> None:
        """Free a row."""
        self.runner.cancel(row)
        self.rows.pop(row, None)

    def step(self, decode: dict[int, int], speak: list[int] | None = None) -> None:
        """Run one step, by default of all rows."""
        result = self.runner.step(list(self.rows) if speak is None else speak, decode)
        for frame in result.frames:
            self.rows[frame.row].codes.append(frame.code)
            self.rows[frame.row].has_ended |= frame.is_end
        for sound in result.sounds:
            self.rows[sound.row].pcm += sound.pcm

    def finish(self, row: int) -> Spoken:
        """Step until a row has ended and all its audio has arrived."""
        while not self.rows[row].has_ended:
            self.step({row: 1})
        self.step({row: 10_000}, [])
        spoken = self.rows.pop(row)
        self.runner.cancel(row)
        return spoken


def difference(one: Spoken, other: Spoken) -> int:
    """Return the largest difference of PCM16 values; random weights amplify rounding to a few."""
    first, second = (
        torch.frombuffer(bytearray(spoken.pcm), dtype=torch.int16).int() for spoken in (one, other)
    )
    return int((first - second).abs().max())
