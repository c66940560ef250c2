"""What is remembered about the loudness of voices."""

import pytest

from voiceagent_tts.synthesizer.voice_levels import VoiceLevels


def test_a_level_follows_the_contexts_of_its_voice() -> None:
    """A new figure counts half, by its logarithm; voices do not share one."""
    levels = VoiceLevels()
    assert levels.level_of("a") == 0.0
    levels.add("a", 8_000)
    assert levels.level_of("a") == 8_000
    levels.add("a", 2_000)
    assert levels.level_of("a") == pytest.approx(4_000)
    levels.add("a", 0.0)
    assert levels.level_of("a") == pytest.approx(4_000), "a silent context shows no level"
    assert levels.level_of("b") == 0.0
