"""The simulation of an aligner on the engine's GPU."""

from benchmarks.engine.beside_aligner import CARDS, KINDS, beside, crowd, first_sounds_ms, row
from testbed.simulation import Simulation


def test_bounded_passes_cost_listeners_less_than_unbounded_ones() -> None:
    """Short passes cause no gap, and delay the slowest first sounds less than long ones."""
    card, rate = CARDS["slow"], 5.0
    wishes = crowd(rate, 20.0)
    short, long = (
        Simulation(wishes, beside(card, passes, rate), is_measured=True)
        for passes in (KINDS[1], KINDS[-1])
    )
    waits = [first_sounds_ms(simulation.run()) for simulation in (short, long)]
    assert short.passes and long.passes
    assert len(waits[0]) == len(waits[1]) == len(wishes)
    assert sum(listener.gaps for listener in short.listeners) == 0
    assert waits[0][-1] < waits[1][-1]


def test_a_line_of_the_table_has_the_share_of_the_passes() -> None:
    """Without an aligner passes take no time."""
    wishes = crowd(2.0, 5.0)
    assert row("alone", CARDS["fast"], wishes).endswith(" 0.0%")
    assert not row("both", beside(CARDS["fast"], KINDS[0], 2.0), wishes).endswith(" 0.0%")
