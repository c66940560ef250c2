"""What the forced aligner on the engine's GPU costs listeners: the real scheduler, simulated GPUs.

The engine waits for every pass to its end, as if streams had no priorities: the worst case. Costs
of steps and passes are assumed, none is measured.

    python -m benchmarks.engine.beside_aligner
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from testbed.simulation import Device, Listener, Simulation, Wish

CARDS = {
    "fast": Device(rows=64, start_s=0.008, step_s=0.008, row_s=0.0001, lag_steps=1),
    "slow": Device(rows=64, start_s=0.02, step_s=0.03, row_s=0.0004, lag_steps=1),
}
RATES = (2, 5, 8)
"""New contexts a second."""
_FRAMES = (30, 110)  # of a context: 2.4 to 8.8 s
_MEAN_S = sum(_FRAMES) / 2 * 0.08
_ALIGNED_PER_AUDIO = 1.5
"""Clips of unfinished segments repeat their last words."""


@dataclass(frozen=True)
class Passes:
    """How an aligner works beside the engine.

    Attributes:
        name: description for people.
        audio_s: audio of one pass.
        pass_s: duration of a pass.
        wait_s: longest wait for a moment in which no listener is in a hurry.
    """

    name: str
    audio_s: float
    pass_s: float
    wait_s: float = 0.2


KINDS = (
    Passes("30 s in 10 ms", 30, 0.01),
    Passes("30 s in 25 ms", 30, 0.025),
    Passes("30 s in 25 ms, no wait", 30, 0.025, wait_s=0.0),
    Passes("lone clips of 3 s in 10 ms", 3, 0.01),
    Passes("300 s in 250 ms, no wait", 300, 0.25, wait_s=0.0),
)


def crowd(rate: float, seconds: float, seed: int = 1) -> list[Wish]:
    """Contexts that arrive at random, `rate` a second on average."""
    source, at = random.Random(seed), 0.0
    wishes = list[Wish]()
    while at < seconds:
        at += source.expovariate(rate)
        wishes.append(Wish(at=at, runs=(source.randint(*_FRAMES),)))
    return wishes


def beside(card: Device, passes: Passes, rate: float) -> Device:
    """Return a GPU with an aligner that keeps up with the speech of `rate` contexts a second."""
    every_s = passes.audio_s / (rate * _MEAN_S * _ALIGNED_PER_AUDIO)
    idle_s = max(every_s - passes.pass_s, 0.001)
    return replace(card, align_every_s=idle_s, align_s=passes.pass_s, align_wait_s=passes.wait_s)


def first_sounds_ms(listeners: Sequence[Listener]) -> list[float]:
    """Waits for the first sound, ascending."""
    return sorted(
        1000 * (listener.first_sound - listener.wish.at)
        for listener in listeners
        if listener.first_sound is not None
    )


def row(name: str, card: Device, wishes: Sequence[Wish]) -> str:
    """Simulate a crowd; return a line of the table."""
    simulation = Simulation(wishes, card, is_measured=True)
    listeners = simulation.run(most_steps=1_000_000)
    waits = first_sounds_ms(listeners)
    p50, p95, p99 = (waits[int(share * (len(waits) - 1))] for share in (0.5, 0.95, 0.99))
    gaps = sum(listener.gaps for listener in listeners)
    share = simulation.passes * card.align_s / simulation.now
    return f"{name:32}{p50:8.0f}{p95:8.0f}{p99:8.0f}{gaps:8}{share:10.1%}"


def main(seconds: float = 120.0) -> None:
    """Print the table."""
    print(f"{'simulated; contexts a second':32}" + "   p50 ms  p95 ms  p99 ms    gaps  passes")
    for name, card in CARDS.items():
        for rate in RATES:
            wishes = crowd(rate, seconds)
            print(row(f"{name} card, {rate}/s, alone", card, wishes))
            for passes in KINDS:
                print(row(f"  {passes.name}", beside(card, passes, rate), wishes))


if __name__ == "__main__":
    main()
