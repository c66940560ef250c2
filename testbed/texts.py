"""Strategies for agents' texts in ten languages: numbers, abbreviations, URLs, markdown, emoji."""

from itertools import pairwise

from hypothesis import strategies as st

from testbed.sentences import TEXTS

MIXED = (
    "Say こんにちは (konnichiwa) or 안녕하세요, then 你好! Привет too.",
    "👩‍👩‍👧 🇩🇪 1️⃣ 👍🏽",
    "--- *** ___ ~~~",
    "| Name | Price |\n|------|------:|\n| Tea | 3.5 |\n| Coffee | 4 |\n\nAnything else?",
    "```python\nprint('hi')\n```\nThat prints *hi*.",
    "café, naïve, Zoe\u0308, e\u0301te\u0301",
    "नमस्ते। आप कैसे हैं? مرحبا، كيف حالك؟ สวัสดีครับ",
    "a\u0000b\u200bc\ufeffd \ud83d lone \u2028 line",
    "http://localhost:8000/v1/tts?voice=a_b&x=1 ... -5 – 10 … <b>bold</b> & <br/> x < y > z",
)

ALL = tuple(text for texts in TEXTS.values() for text in texts) + MIXED


def any_text(max_size: int = 120) -> st.SearchStrategy[str]:
    """Draw any characters, including lone surrogates; those of real texts are more frequent."""
    frequent = st.sampled_from(
        list(" \n.!?,;:…。！？，、「」“”()[]*_#>-`~|<5a好あー한é\u0301\u200d😊\u00a0")
    )
    return st.text(st.one_of(frequent, st.characters()), max_size=max_size)


def agent_text() -> st.SearchStrategy[str]:
    """Draw pieces of agents' texts, cut at random places, mixed with noise."""
    places = st.integers(0, max(map(len, ALL)))
    piece = st.builds(
        lambda text, a, b: text[min(a, b) : max(a, b)], st.sampled_from(ALL), places, places
    )
    return st.lists(st.sampled_from(ALL) | piece | any_text(12), max_size=4).map("".join)


def chunked(text: str) -> st.SearchStrategy[list[str]]:
    """Cut `text` at random places, like the deltas of an LLM."""
    places = st.lists(st.integers(0, len(text)), max_size=12)
    return places.map(lambda cuts: _split(text, sorted(cuts)))


def _split(text: str, cuts: list[int]) -> list[str]:
    borders = [0, *cuts, len(text)]
    return [text[start:end] for start, end in pairwise(borders)]
