import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from benchmarks.engine.answering import Child
from benchmarks.engine.reference import (
    Contest,
    FirstAudio,
    Result,
    Sides,
    Speech,
    figures,
    hold,
    top_1_agreement,
)

CHECKPOINT = Path(__file__).parents[1] / "reference" / "custom_voice-1b7"


class KeptChild(Child):
    """A child that stays alive between tests, because starting it takes seconds."""

    def __exit__(self, *_: object) -> None:
        """Do nothing; `end` ends the process."""

    def end(self) -> None:
        """End the process."""
        super().__exit__(None, None, None)


class BothOurs(Sides):
    """Uses our engine in place of the official package, which is not installed here."""

    kept: ClassVar[dict[str, KeptChild]] = {}

    def official(self, precision: str) -> Child:
        """Start our engine's rows."""
        return self.ours("float32", "plain")

    def _child(self, argv: list[str], name: str, **environment: str) -> Child:
        if name not in self.kept:
            log = self.packages / f"{name}.log"
            self.kept[name] = KeptChild([sys.executable, *argv], environment, log)
        return self.kept[name]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    """Both sides with a tiny model; their processes end with the module."""
    yield BothOurs(CHECKPOINT, tmp_path_factory.mktemp("reference"), 1, "Hello there, somebody.")
    while BothOurs.kept:
        BothOurs.kept.popitem()[1].end()


@pytest.mark.thorough
def test_our_side_speaks_as_many_frames_as_asked(sides: Sides) -> None:
    """The first audio arrives before the last, and the peak memory is reported."""
    with sides.ours("float32", "packed") as child:
        short, long = sides.speak(child, 2), sides.speak(child, 9)
    assert (short.frames, long.frames) == (2, 9)
    assert 0 < long.first_audio_s < long.total_s
    assert long.peak_mb >= short.peak_mb > 50


def test_both_sides_have_as_many_turns(sides: Sides) -> None:
    """Each round gives one figure per side."""
    ticks = list[None]()
    contest = Contest("plain", "float32", "float32", "plain", 1.0)
    result = hold(contest, sides, 3, 6, lambda: ticks.append(None))
    assert len(result.official) == len(result.ours) == 3
    assert len(ticks) == 6


def test_a_precision_is_held_against_float32(sides: Sides) -> None:
    """Along a given speech bfloat16 chooses most, but not all, of float32's codes."""
    assert 0.8 < top_1_agreement(sides, "bfloat16", 12, lambda: None) < 1.0


def test_ratios_are_official_over_ours() -> None:
    """Ratios are official medians divided by ours; above one ours is faster."""
    contest = Contest("any", "float32", "float32", "packed", 1.0)
    ours_ms = (200.0, 100.0, 80.0, 40.0, 50.0, 400.0)
    results = [Result(contest, [300.0, 100.0, 200.0], [ours] * 3) for ours in ours_ms]
    long = FirstAudio(Speech(125, 60.0, 60.0, 6000.0), Speech(125, 0.5, 30.0, 5000.0))
    found = figures(results, long, 0.97)
    assert found["frames_ratio_plain"] == 1.0
    assert found["frames_ratio_equal_precision"] == 2.0
    assert found["frames_ratio_bfloat16"] == 2.5
    assert found["frames_ratio_int8"] == 5.0
    assert found["frames_ratio_best"] == 4.0
    assert found["ms_per_frame"][0]["official_ms"] == [300.0, 100.0, 200.0]
    assert found["frames_ratio_best_vs_official_bf16"] == 0.5
    assert found["first_audio_ratio"] == 120.0
    assert found["memory_ratio"] == 1.2
    assert found["best_top_1_agreement"] == 0.97
