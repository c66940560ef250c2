"""Estimates what steps and starts of sequences cost, from those that were measured."""


class StepTimes:
    """Estimates the duration of a step by its number of rows: a line through the latest steps.

    A step that the machine held up counts with four times the expected duration. A device that has
    become slower is known after some more steps.

    While all steps had the same number of rows, one more row is taken to cost nothing: it is
    admitted, and then its cost is known.
    """

    _DECAY = 0.98
    _FEW_STEPS = 8
    _LONGEST = 4.0  # times what is expected
    _LEAST_SPREAD = 0.1  # rows squared; below it, differences are noise

    def __init__(self) -> None:
        self._weight = 0.0
        self._rows = self._seconds = 0.0  # means
        self._spread = self._covariance = 0.0

    @property
    def is_known(self) -> bool:
        """Whether any step was recorded."""
        return self._weight > 0

    def add(self, rows: int, seconds: float) -> None:
        """Record the duration of a step of `rows` rows."""
        expected_s = max(self.of(rows), self._seconds)
        if expected_s > 0 and self._weight >= self._FEW_STEPS:
            seconds = min(seconds, self._LONGEST * expected_s)
        self._weight = self._DECAY * self._weight + 1
        share = 1 / self._weight
        off_rows, off_seconds = rows - self._rows, seconds - self._seconds
        self._rows += share * off_rows
        self._seconds += share * off_seconds
        self._spread += share * (off_rows * (rows - self._rows) - self._spread)
        self._covariance += share * (off_rows * (seconds - self._seconds) - self._covariance)

    def of(self, rows: int) -> float:
        """Return the expected duration of a step of `rows` rows, in seconds; 0 if unknown."""
        if self._spread < self._LEAST_SPREAD:
            return self._seconds
        slope = max(0.0, self._covariance / self._spread)
        return max(0.0, self._seconds + slope * (rows - self._rows))


class StepCosts:
    """The expected durations of steps, by their rows, and of one start within a step."""

    def __init__(self) -> None:
        self.steps, self.starts = StepTimes(), StepTimes()

    def record(self, rows: int, starts: int, seconds: float) -> None:
        """Record the duration of a step that made a frame of `rows` rows, `starts` of them new."""
        if not starts:
            self.steps.add(rows, seconds)
        elif self.steps.is_known:
            self.starts.add(1, max(0.0, seconds - self.steps.of(rows)) / starts)
