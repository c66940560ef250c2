from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import ClassVar

import pytest

from benchmarks.engine.child import Ask
from benchmarks.engine.reference import CONTESTS, Result, Sides, Speech, figures
from voiceagent_tts.engine.options import Precision

CHECKPOINT = Path(__file__).parents[1] / "reference" / "custom_voice-1b7"


class BothOurs(Sides):
    """Uses our engine in place of the official package, which is not installed here."""

    kept: ClassVar[ExitStack] = ExitStack()
    asks: ClassVar[dict[str, Ask]] = {}

    def official(self) -> AbstractContextManager[Ask]:
        """Start our engine's rows."""
        return self.ours()

    def ours(self, precision: Precision = "float32") -> AbstractContextManager[Ask]:
        """Start our engine's rows, or use those of an earlier test, because it takes seconds."""
        if precision not in self.asks:
            self.asks[precision] = self.kept.enter_context(super().ours(precision))
        return nullcontext(self.asks[precision])


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    """Both sides with a tiny model; their processes end with the module."""
    yield BothOurs(CHECKPOINT, tmp_path_factory.mktemp("reference"), 1, "Hello there, somebody.")
    BothOurs.kept.close()


def test_both_sides_have_as_many_turns(sides: Sides) -> None:
    """Each round gives one figure per side, of calls that made as many frames as asked."""
    with sides.ours() as ask:
        long = sides.speak(ask, 9)
    assert long.frames == 9 and 0 < long.first_audio_s < long.total_s
    result = sides.hold(CONTESTS[0], 3, 6)
    assert len(result.official_ms) == len(result.our_ms) == 3


def test_ratios_are_official_over_ours() -> None:
    """Ratios are official medians divided by ours; above one ours is faster."""
    ours_ms = (200.0, 100.0, 80.0, 40.0)
    results = [
        Result(contest, [300.0, 100.0, 200.0], [ours] * 3)
        for contest, ours in zip(CONTESTS, ours_ms, strict=True)
    ]
    long = Speech(125, 60.0, 60.0), Speech(125, 0.5, 30.0)
    found = figures(results, long)
    ratios = [value for name, value in found.items() if name.startswith("frames_ratio")]
    assert ratios == [1.0, 2.0, 2.5, 5.0]
    assert found["first_audio_ratio"] == 120.0
