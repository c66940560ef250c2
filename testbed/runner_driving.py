"""Step the rows of a tiny model by hand, and collect the audio of each."""

import random
from dataclasses import dataclass, field

import torch

from testbed.engine_driving import CUSTOM_VOICE, load
from voiceagent_tts.engine.codec_stream import Priming
from voiceagent_tts.engine.runner import Runner
from voiceagent_tts.engine.sizes import Shapes, Sizes, graph_sizes
from voiceagent_tts.model.codec_state import CodecState
from voiceagent_tts.model.kv_pool import pages_for
from voiceagent_tts.model.prompt import Preset, Prompt, PromptBuilder
from voiceagent_tts.model.sampling import SamplingParams, sampling_params

TEXT = "The quick brown fox jumps over the lazy dog."


def prompt_of(text: str = TEXT, *, is_streaming: bool = True) -> Prompt:
    checkpoint, _ = load(CUSTOM_VOICE)
    builder = PromptBuilder(checkpoint.config, checkpoint.tokenizer)
    return builder.build(text, Preset("Ryan"), "en", is_streaming=is_streaming)


def sampling(seed: int = 7) -> SamplingParams:
    return sampling_params(load(CUSTOM_VOICE)[0].generation, seed)


def few_graph_sizes(*frames: int) -> Sizes:
    """Return the sizes of a GPU for two rows, without those that short texts do not need."""
    sizes = graph_sizes(2, 512)
    shapes = Shapes((2,), sizes.talker.windows[-1:], (32,))
    return Sizes(shapes, {window: sizes.codec[window][-1:] for window in frames})


def make_graph_runner(sizes: Sizes, *, has_graphs: bool) -> Runner:
    """Make a runner of two rows over tiny weights as a GPU has them."""
    runner = Runner(*load(is_packed=False), 2, 512, sizes=sizes, has_graphs=has_graphs)
    if has_graphs:
        runner.capture(lambda done, total: None)
    return runner


@dataclass
class RowOutput:
    codes: list[int] = field(default_factory=list)
    pcm: bytes = b""
    has_ended: bool = False


@dataclass
class Listener:
    runner: Runner
    rows: dict[int, RowOutput] = field(default_factory=dict)

    def start(self, row: int, text: str = TEXT, seed: int = 7, max_frames: int = 20) -> None:
        self.runner.start(row, prompt_of(text), sampling(seed), max_frames, is_open=False)
        self.rows[row] = RowOutput()

    def cancel(self, row: int) -> None:
        self.runner.cancel(row)
        self.rows.pop(row, None)

    def step(self, decode: dict[int, int], speak: list[int] | None = None) -> None:
        result = self.runner.step(list(self.rows) if speak is None else speak, decode)
        for frame in result.frames:
            self.rows[frame.row].codes.append(frame.code)
            self.rows[frame.row].has_ended |= frame.is_end
        for sound in result.sounds:
            self.rows[sound.row].pcm += sound.pcm

    def finish(self, row: int) -> RowOutput:
        """Step until a row has ended and all its audio has arrived."""
        while not self.rows[row].has_ended:
            self.step({row: 1})
        self.step({row: 10_000}, [])
        while self.runner.has_sound_in_flight:
            self.step({}, [])
        spoken = self.rows.pop(row)
        self.runner.cancel(row)
        return spoken


def converse(runner: Runner, seed: int) -> dict[int, RowOutput]:
    """Start, pause, cancel and finish rows at random, with and without prepared prompts.

    Some rows start from a computed prefix, and some from a reference that primes the codec.

    Returns:
        What was spoken to its end, by the number of its start.
    """
    choices, listener = random.Random(seed), Listener(runner)
    numbers, finished, started = dict[int, int](), dict[int, RowOutput](), 0

    def finish(row: int) -> None:
        finished[numbers[row]] = listener.finish(row)

    for _ in range(16):
        for row in runner.batch.free:
            if choices.random() < 0.5 and started < 5:
                _start_any(listener, row, started, choices)
                numbers[row], started = started, started + 1
        if listener.rows and choices.random() < 0.12:
            listener.cancel(choices.choice(sorted(listener.rows)))
        speak = [row for row in listener.rows if choices.random() < 0.8]
        windows = {row: choices.choice((3, 7, 12)) for row in listener.rows}
        listener.step({row: n for row, n in windows.items() if choices.random() < 0.3}, speak)
        for row in [row for row, spoken in listener.rows.items() if spoken.has_ended]:
            if choices.random() < 0.5:
                finish(row)
    for row in list(listener.rows):
        finish(row)
    return finished


def _start_any(listener: Listener, row: int, seed: int, choices: random.Random) -> None:
    runner = listener.runner
    prompt = prompt_of(" ".join(choices.choices(TEXT.split(), k=choices.randint(1, 9))))
    prefix = primed = None
    if choices.random() < 0.4:
        beginning = Prompt(prompt.text_ids[:7], prompt.codec_ids[:7])
        own_page = row * pages_for(runner.capacity) + 1  # the row is free, and so is its page
        prefix = runner.prepare(beginning, [own_page])
    if choices.random() < 0.4:
        codebooks = load(CUSTOM_VOICE)[1].codebooks
        generator = torch.Generator().manual_seed(seed)
        reference = torch.randint(0, 8, (14, codebooks), generator=generator)
        primed = state_after(runner.prime(reference))
    runner.start(
        row,
        prompt,
        sampling(seed),
        choices.randint(6, 12),
        is_open=False,
        prefix=prefix,
        primed=primed,
    )
    listener.rows[row] = RowOutput()


def state_after(priming: Priming) -> CodecState:
    while not priming.is_done:
        priming.advance()
    return priming.state


def difference(one: RowOutput, other: RowOutput) -> int:
    """Return the largest difference of PCM16 values; random weights amplify rounding to a few."""
    first, second = (
        torch.frombuffer(bytearray(spoken.pcm), dtype=torch.int16).int() for spoken in (one, other)
    )
    return int((first - second).abs().max())
