import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

from voiceagent_tts.plugins.bench.loads import Style, arrivals, written
from voiceagent_tts.plugins.bench.texts import Text

TEXTS = [Text("en", "short", f"This is text number {number}.") for number in range(5)]


@given(st.text(max_size=300), st.integers())
def test_the_pieces_of_a_written_text_are_the_text(text: str, seed: int) -> None:
    """Joined, they are the text; they come in order, the first at once."""
    pieces = list(written(text, random.Random(seed)))
    assert "".join(piece for _, piece in pieces) == text
    times = [at_s for at_s, _ in pieces]
    assert times == sorted(times)
    assert not times or times[0] == 0


def test_equal_seeds_give_equal_requests() -> None:
    """Everything random follows from the seed; each round has every text once."""
    style = Style(TEXTS, has_tokens=True, barge_ins=0.5, seed=4)
    first, again = (list(itertools.islice(style.requests(), 10)) for _ in range(2))
    assert first == again
    assert {request.text for request in first[:5]} == {text.text for text in TEXTS}
    assert len({request.seed for request in first}) == 10
    other = Style(TEXTS, has_tokens=True, barge_ins=0.5, seed=5)
    assert list(itertools.islice(other.requests(), 10)) != first


def test_arrivals_are_as_frequent_as_asked() -> None:
    """A Poisson process: the mean gap is that of the rate, and gaps vary as much."""
    times = list(itertools.islice(arrivals(20.0, 1), 4_000))
    gaps = [late - early for early, late in itertools.pairwise(times)]
    mean = sum(gaps) / len(gaps)
    assert 0.047 < mean < 0.053
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert 0.9 < deviation / mean < 1.1
