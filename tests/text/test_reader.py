"""The reader: readings and breaks of a text, however it was split into deltas."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from testbed.texts import any_text, chunked
from voiceagent_tts.core import Pause, Reading
from voiceagent_tts.lexicon import check_entries
from voiceagent_tts.text.entries import EntryMatcher
from voiceagent_tts.text.reader import MAX_PAUSES_MS, Passage, Reader

LEXICON = EntryMatcher(
    check_entries(
        {
            "nginx": "engine x",
            "US": "you ess",
            "new york": "noo yawk",
            "new york city": {"say": "the big apple"},
            "重庆": "/tʂʰʊŋtɕʰiŋ/",
            "a": "b",
            "b": "a",
        }
    )
)
PIECES = (
    "nginx", "New York", " City", "US", "us", "重庆", "a", "b", "ngin", "new ",
    '<break time="0.1s"/>', "<spell>", "A7-42X", "</spell>", '<sub alias="x y">', "</sub>",
    "<b>", "<", ">", " ", ", ", ".\n", "e\u0301",
)  # fmt: skip


def texts() -> st.SearchStrategy[str]:
    """Texts of entries, tags, their beginnings, and anything else."""
    return st.lists(st.sampled_from(PIECES) | any_text(max_size=6), max_size=12).map("".join)


Part = tuple[str, tuple[Reading, ...]] | Pause


def joined(parts: list[Passage | Pause]) -> list[Part]:
    """Breaks, and the text between them in one."""
    whole: list[Part] = [("", ())]
    for part in parts:
        if isinstance(part, Pause):
            whole += [part, ("", ())]
            continue
        last = whole[-1]
        assert isinstance(last, tuple)
        whole[-1] = (last[0] + part.text, last[1] + part.readings)
    return whole


def read(*deltas: str) -> list[Part]:
    reader = Reader([LEXICON], has_markup=True)
    parts = [part for delta in deltas for part in reader.push(delta)]
    return joined(parts + reader.flush())


@given(texts().flatmap(lambda text: st.tuples(st.just(text), chunked(text))))
@example(("new york nginx", ["n", "ew", " york n", "ginx"]))
def test_the_split_into_deltas_does_not_matter(case: tuple[str, list[str]]) -> None:
    text, deltas = case
    assert read(*deltas) == read(text)


@given(texts())
def test_offsets_are_those_of_the_client(text: str) -> None:
    """Masked text has the length of the client's, and differs from it only where it is masked."""
    masked = ""
    readings: list[Reading] = []
    for part in read(text):
        if isinstance(part, Pause):
            assert part.char_end == len(masked)
            assert text[: part.char_end].endswith(">")
            continue
        masked += part[0]
        readings += part[1]
    assert len(masked) == len(text)
    inside = {at for each in readings for at in range(each.char_start, each.char_end)}
    for at, (shown, written) in enumerate(zip(masked, text, strict=True)):
        assert shown == "x" if at in inside else shown in (written, " ")
    ends = [0, *(each.char_end for each in readings)]
    assert all(end <= each.char_start for end, each in zip(ends, readings, strict=False))


def test_entries_do_not_apply_to_what_others_say() -> None:
    """So entries that name each other are no cycle: each is said once."""
    ((_, readings),) = read("a b")
    assert [reading.said for reading in readings] == ["b", "a"]


@pytest.mark.parametrize(
    ("delta", "passed"),
    [
        ("use the ", "use the "),
        ("use ngin", "use "),
        ("use nginx", "use "),
        ("x new yorks", "x new yorks"),
    ],
)
def test_only_the_beginning_of_an_entry_waits(delta: str, passed: str) -> None:
    """All text before it is returned at once."""
    reader = Reader([EntryMatcher(check_entries({"nginx": "engine x", "new york": "x y"}))])
    assert joined(reader.push(delta))[0][0].rstrip() == passed.rstrip()  # type: ignore[union-attr]
    assert reader.is_holding == (delta != passed)


def test_a_pause_of_the_client_releases_an_entry_and_keeps_a_tag() -> None:
    """The rest of the entry is then read as it is written."""
    reader = Reader([LEXICON], has_markup=True)
    assert reader.push("ngin") == []
    assert reader.release() == [Passage("ngin")]
    assert reader.push("x <spell>A") == [Passage("x ")]
    assert not reader.is_holding
    assert reader.release() == []
    (passage,) = reader.push("7</spell>")
    assert isinstance(passage, Passage)
    assert passage.readings == (Reading(6, 23, "A-7"),)


def test_breaks_have_a_sum() -> None:
    """Breaks beyond it are shortened, then left out."""
    reader = Reader(has_markup=True)
    parts = reader.push('<break time="9s"/>' * 10)
    pauses = [part.samples for part in parts if isinstance(part, Pause)]
    assert sum(pauses) == MAX_PAUSES_MS * 24
    assert len(pauses) == 7
