"""How many replicas does a number of concurrent streams need? Simulated on paper, without a server.

Calls come to replicas by `leastconn` and stay on their socket. In a call the agent speaks, and
pauses while the user does. A turn takes a row of its replica; without a free one it is refused and
asks again after `retry_after_ms`. For each number of streams the program finds the fewest replicas
with which the share of refused turns stays within the limit, then kills one of them.

    python -m benchmarks.service.capacity --rows 64 --streams 100,1000,10000

What one replica carries is measured (`make bench-load`, `make bench-transport`); docs/scale.md has
the figures. The simulation knows no latency: within its rows, a replica speaks in real time.
"""

import argparse
import heapq
import math
import random
from collections import deque
from dataclasses import asdict, dataclass

from benchmarks.common.report import publish

_RETRY_S = 0.5
"""As `retry_after_ms` of a server without an estimate of its own."""
_WARM_UP_S = 30.0
_SETTLE_S = 30.0
"""Time after the kill of a replica in which refusals are counted apart."""


@dataclass(frozen=True, slots=True)
class Calls:
    """How people talk.

    Attributes:
        speaking_s: mean length of a turn of the agent.
        pausing_s: mean time between its turns.
    """

    speaking_s: float
    pausing_s: float

    @property
    def share(self) -> float:
        """Share of a call in which the agent speaks."""
        return self.speaking_s / (self.speaking_s + self.pausing_s)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a fleet did.

    Attributes:
        streams: mean number of turns spoken at the same time.
        turns: turns that asked for a row.
        refused: turns that were refused at least once.
        busiest: most rows in use on one replica, as a share.
        refused_after_kill: turns refused in the 30 s after a replica died, as a share.
    """

    streams: float
    turns: int
    refused: int
    busiest: float
    refused_after_kill: float

    @property
    def refused_share(self) -> float:
        """Share of the turns that were refused."""
        return self.refused / max(1, self.turns)


class Fleet:
    """Simulates one fleet.

    Args:
        replicas: number of replicas.
        rows: rows of each.
        calls: number of calls at the same time.
        habits: how people talk.
        seed: of the random numbers.
    """

    def __init__(self, replicas: int, rows: int, calls: int, habits: Calls, seed: int) -> None:
        self._random = random.Random(seed)
        self._rows = rows
        self._habits = habits
        self._used = [0] * replicas
        self._sockets: list[deque[int]] = [deque() for _ in range(replicas)]
        self._place = [0] * calls
        self._turn = [0] * calls  # rises with each turn, so that an end of an older one is ignored
        self._is_speaking = [False] * calls
        self._events: list[tuple[float, int, int, str]] = []
        self._turns = self._refused = 0
        self._spoken_s = 0.0
        self._busiest = 0
        self._after_kill = [0, 0]
        for call in range(calls):
            self._connect(call, call % replicas)
            self._later(self._random.uniform(0, 1) * habits.pausing_s, call, "start")

    def run(self, seconds: float) -> Outcome:
        """Run for `seconds` after the warm-up; a replica dies 30 s before the end."""
        end, kill_at = _WARM_UP_S + seconds, _WARM_UP_S + seconds - _SETTLE_S
        is_killed = len(self._used) < 2
        while self._events[0][0] < end:
            now, turn, call, what = heapq.heappop(self._events)
            if not is_killed and now >= kill_at:
                is_killed = True
                self._kill(0, now)
            if what == "end":
                self._end(now, turn, call)
            else:
                self._start(now, call, what == "again", now >= kill_at)
        asked, refused = self._after_kill
        return Outcome(
            streams=self._spoken_s / (kill_at - _WARM_UP_S),
            turns=self._turns,
            refused=self._refused,
            busiest=self._busiest / self._rows,
            refused_after_kill=refused / max(1, asked),
        )

    def _later(self, at: float, call: int, what: str) -> None:
        heapq.heappush(self._events, (at, self._turn[call], call, what))

    def _connect(self, call: int, replica: int) -> None:
        self._place[call] = replica
        self._sockets[replica].append(call)

    def _start(self, now: float, call: int, is_again: bool, is_after_kill: bool) -> None:
        replica = self._place[call]
        is_refused = self._used[replica] >= self._rows
        if not is_again:
            self._count(now, is_refused, is_after_kill)
        if is_refused:
            self._later(now + _RETRY_S, call, "again")
            return
        self._used[replica] += 1
        self._turn[call] += 1
        self._is_speaking[call] = True
        if not is_after_kill:
            self._busiest = max(self._busiest, self._used[replica])
        length_s = self._random.expovariate(1 / self._habits.speaking_s)
        if now >= _WARM_UP_S and not is_after_kill:
            self._spoken_s += length_s
        self._later(now + length_s, call, "end")

    def _count(self, now: float, is_refused: bool, is_after_kill: bool) -> None:
        if is_after_kill:
            self._after_kill[0] += 1
            self._after_kill[1] += is_refused
        elif now >= _WARM_UP_S:
            self._turns += 1
            self._refused += is_refused

    def _end(self, now: float, turn: int, call: int) -> None:
        if turn != self._turn[call] or not self._is_speaking[call]:
            return  # the turn broke off with its replica
        self._is_speaking[call] = False
        self._used[self._place[call]] -= 1
        self._later(now + self._random.expovariate(1 / self._habits.pausing_s), call, "start")

    def _kill(self, replica: int, now: float) -> None:
        """Move the sockets of a replica to those with the fewest; broken turns ask again."""
        calls, self._sockets[replica] = self._sockets[replica], deque()
        self._used[replica] = self._rows  # takes no turn any more
        others = [(len(each), i) for i, each in enumerate(self._sockets) if i != replica]
        heapq.heapify(others)
        for call in calls:
            sockets, place = heapq.heappop(others)
            heapq.heappush(others, (sockets + 1, place))
            self._connect(call, place)
            if self._is_speaking[call]:
                self._is_speaking[call] = False
                self._later(now, call, "start")


def fewest_replicas(
    streams: int, rows: int, habits: Calls, limit: float, seconds: float, seed: int
) -> tuple[int, Outcome]:
    """Find the fewest replicas within the limit of refused turns, and what they do."""
    calls = round(streams / habits.share)

    def outcome(replicas: int) -> Outcome:
        return Fleet(replicas, rows, calls, habits, seed).run(seconds)

    low = max(1, math.ceil(streams / rows))
    high = low
    while (found := outcome(high)).refused_share > limit:
        low, high = high + 1, math.ceil(high * 1.25) + 1
    best = (high, found)
    while low < high:
        middle = (low + high) // 2
        found = outcome(middle)
        if found.refused_share <= limit:
            high, best = middle, (middle, found)
        else:
            low = middle + 1
    return best


def main() -> None:
    """Print a line for each number of streams, and a JSON object last."""
    given = _arguments()
    habits = Calls(given.speaking_s, given.pausing_s)
    fleets: list[dict[str, float]] = []
    for streams in map(int, given.streams.split(",")):
        replicas, found = fewest_replicas(
            streams, given.rows, habits, given.limit, given.seconds, given.seed
        )
        share = found.streams / (replicas * given.rows)
        fleets.append({"asked": streams, "replicas": replicas, "rows_used": share, **asdict(found)})
        print(
            f"{streams:6} streams, {given.rows} rows: {replicas} replicas, {share:.0%} of the rows "
            f"in use, {found.refused_share:.3%} refused; {found.refused_after_kill:.2%} in the "
            "30 s after one dies"
        )
    publish({"rows": given.rows, "limit": given.limit, "fleets": fleets})


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=64, help="rows that one replica carries")
    parser.add_argument("--streams", default="100,1000,10000", help="streams at the same time")
    parser.add_argument("--limit", type=float, default=0.001, help="share of turns refused")
    parser.add_argument("--speaking-s", type=float, default=5.1, help="mean length of a turn")
    parser.add_argument("--pausing-s", type=float, default=7.6, help="mean time between turns")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
