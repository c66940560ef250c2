"""The time to a row's first sound, with and without a prepared beginning of its prompt."""

from benchmarks.engine.bench import time_first_sounds
from testbed.engine_driving import load
from voiceagent_tts.engine.runner import Runner
from voiceagent_tts.model.prompt import Preset, PromptBuilder
from voiceagent_tts.model.sampling import sampling_params


def test_a_prepared_prefix_is_not_computed_again() -> None:
    """First audio is timed with and without a prepared prefix; the row is free again."""
    checkpoint, codec = load()
    runner = Runner(checkpoint, codec, 3, capacity=256)
    builder = PromptBuilder(checkpoint.config, checkpoint.tokenizer)
    prompt = builder.build("One more sentence, for timing.", Preset("ryan"), "english")
    prefix = runner.prepare(
        builder.build_prefix(Preset("ryan"), "english", is_streaming=False), [1]
    )
    sampling = sampling_params(checkpoint.generation, seed=0)
    for prepared in (None, prefix):
        first_s, second_s = time_first_sounds(runner, prompt, sampling, prepared)
        assert 0 < first_s < second_s
    assert runner.free_rows == [0, 1, 2]
