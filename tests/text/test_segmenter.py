"""Segments tile the text and do not depend on how it was split into deltas."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.texts import agent_text, any_text, chunked
from testbed.timing import is_linear
from voiceagent_tts.core import Segment
from voiceagent_tts.text import segmenter as module
from voiceagent_tts.text.segmenter import Segmenter
from voiceagent_tts.text.words import is_spoken


def segments_of(
    *deltas: str, first_clause: bool = False, max_chars: int = 250, language: str | None = None
) -> list[str]:
    """Texts of all segments of a context, without timers."""
    segmenter = Segmenter(max_chars, first_clause, language)
    segments = [segment for delta in deltas for segment in segmenter.push(delta)]
    return [segment.text for segment in segments + segmenter.flush()]


def texts(segments: list[Segment]) -> list[str]:
    return [segment.text for segment in segments]


# Properties


@settings(deadline=None)
@given(st.data(), st.booleans(), st.sampled_from([20, 60, 250]))
def test_any_chunking_gives_the_same_segments(
    data: st.DataObject, first_clause: bool, max_chars: int
) -> None:
    text = data.draw(agent_text() | any_text())
    options = {"first_clause": first_clause, "max_chars": max_chars}
    whole = segments_of(text, **options)
    assert segments_of(*data.draw(chunked(text)), **options) == whole
    assert segments_of(*text, **options) == whole


ACTIONS = ["push", "push", "push", "settle", "release", "flush"]


@settings(deadline=None)
@given(agent_text() | any_text(), st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 30))))
def test_segments_tile_the_text(text: str, actions: list[tuple[str, int]]) -> None:
    """With any timers, segments joined are the text, offsets follow, and none is empty."""
    segmenter = Segmenter(max_chars=40)
    segments: list[Segment] = []
    flushed: set[int] = set()
    position = 0
    for action, size in [*actions, ("push", len(text))]:
        if action == "push":
            segments += segmenter.push(text[position : position + size])
            position = min(len(text), position + size)
        else:
            segments += getattr(segmenter, action)()
        if action == "flush":
            flushed.add(position)
            assert segmenter.pending == 0
        assert segmenter.pending == position - (segments[-1].char_end if segments else 0)
    segments += segmenter.flush()
    assert "".join(texts(segments)) == text
    for segment in segments:
        assert segment.text == text[segment.char_start : segment.char_end] != ""
        assert is_spoken(segment.text) or segment.char_end in flushed | {len(text)}


@settings(deadline=None)
@given(agent_text() | any_text(600), st.sampled_from([30, 250]))
def test_no_segment_is_too_long(text: str, max_chars: int) -> None:
    """A segment has at most `max_chars`, not counting long unspoken text before its words."""
    for segment in segments_of(text, first_clause=True, max_chars=max_chars)[:-1]:
        speech = next(i for i, character in enumerate(segment) if character.isalnum())
        assert len(segment) <= max_chars + (speech if speech > max_chars // 2 else 0)


@settings(deadline=None)
@given(st.data())
def test_settle_splits_exactly_when_a_sentence_ends(data: st.DataObject) -> None:
    segmenter = Segmenter()
    for delta in data.draw(chunked(data.draw(agent_text()))):
        segmenter.push(delta)
        ends_sentence = segmenter.ends_sentence
        assert len(segmenter.settle()) == ends_sentence
        assert not segmenter.ends_sentence


# Sentences


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello there. How are you? Fine!", ["Hello there.", " How are you?", " Fine!"]),
        ("Pay $3.5 at example.com now. Ok", ["Pay $3.5 at example.com now.", " Ok"]),
        ("Ask Dr. Li, e.g. me. U.S. troops came", ["Ask Dr. Li, e.g. me.", " U.S. troops came"]),
        ('He said "No." Then (maybe!) left.', ['He said "No."', " Then (maybe!)", " left."]),
        ("**Done.** *Really?* Yes", ["**Done.**", " *Really?*", " Yes"]),
        ("Well... maybe. Wait… What? No", ["Well... maybe.", " Wait…", " What?", " No"]),
        ("Great!😊 Next", ["Great!😊", " Next"]),
        ("你好。今天“好的。”“再见！”他说", ["你好。", "今天“好的。”", "“再见！”", "他说"]),
        ("好吗？Yes!是的", ["好吗？", "Yes!", "是的"]),
        ("안녕하세요. 갈까요?", ["안녕하세요.", " 갈까요?"]),
        ("नमस्ते। आप कैसे हैं?", ["नमस्ते।", " आप कैसे हैं?"]),
        ("Am 3. Oktober z. B. hier. Gut.", ["Am 3. Oktober z. B. hier.", " Gut."]),
        ("M. Dupont arrive. Mme Curie aussi.", ["M. Dupont arrive.", " Mme Curie aussi."]),
        ("Plan B. We leave at 5 p.m. today. Ok", ["Plan B.", " We leave at 5 p.m. today.", " Ok"]),
        ("It costs $42.50. (As you see). Ok", ["It costs $42.50.", " (As you see).", " Ok"]),
        ("\ud83d done. In 2024. What...? Ok", ["\ud83d done.", " In 2024.", " What...?", " Ok"]),
        ("Im 19. Jahrhundert, in no. 5. Then go", ["Im 19. Jahrhundert, in no. 5.", " Then go"]),
        ("Well... Maybe. On the 5. Then go", ["Well...", " Maybe.", " On the 5.", " Then go"]),
    ],
)  # fmt: skip
def test_sentences_end_segments(text: str, expected: list[str]) -> None:
    """Sentence marks with their closing quotes end a segment; abbreviations and numbers do not."""
    assert segments_of(text) == expected


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "We meet at 3 p.m. tomorrow with Dr. Lee."),
        ("en", "We open at 9:30 a.m. on Monday."),
        ("en", "It is 5 a.m. EST, or 5 p.m. Monday here."),
        ("en", "Mon. through Fri. only."),
        ("en", "In Apt. 4B, 2 lbs. 3 oz. of it."),
        ("en-gb", "In Apt. 4B, 2 lbs. 3 oz. of it."),
        ("en", "See Dr. No at St. Mary on Mt. Everest."),
        ("fr", "M. Dupont avec Mme. Martin et le Dr. Roy le 3 janv. 2026, p. ex. ici."),
        ("de", "Hauptstr. 12, Tel. 030, max. 5, Abs. 2, am 5. Jan. 2026."),
        ("es", "A las 9 a. m. con la Dra. Soto en la Av. Mayor el 3 ene. 2026."),
        ("it", "Il Sig. Rossi al n. 5, pag. 3, p. es. Roma."),
        ("pt", "Na Av. Paulista, tel. 11, p. ex. amanhã, apto. 5, etc. e tal."),
        ("nl", "Bij mevr. Jansen, tel. 020, o.a. hier."),
    ],
)
def test_a_known_language_keeps_its_abbreviations_whole(language: str, text: str) -> None:
    """What is written short ends no sentence before a name, a number or a small letter."""
    assert segments_of(f"{text} ", language=language) == [text, " "]
    assert segments_of(*f"{text} ", language=language) == [text, " "]


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "I live on Main St.| It is near."),
        ("en", "He came at 3 p.m.| Then he left."),
        ("en", "Take vitamin C.| Then go."),
        ("en", "Call Ann etc.| They know."),
        ("de", "Er wohnt in der Hauptstr.| Sie ist lang."),
        ("fr", "Le tarif est max.| Elle part."),
        ("es", "Llego a las 5 p. m.| Luego salgo."),
    ],
)
def test_what_is_written_short_may_end_a_sentence(language: str, text: str) -> None:
    """Before a word that begins a sentence there is a border."""
    assert segments_of(f"{text.replace('|', '')} ", language=language) == [*text.split("|"), " "]


@pytest.mark.parametrize("language", ["en", "de", "fr", "es", "it", "pt", "nl", "pl", "ru"])
def test_other_words_end_a_sentence_at_once(language: str) -> None:
    """Only what is written short waits for the next word."""
    words = "Ok Hmm Paris 2026 soon alto Haus rue casa".split()
    for word in [*words, "cinq min"] if language == "fr" else words:
        segmenter = Segmenter(language=language)
        expected = [f"This is {word}."]
        assert texts(segmenter.push(f"This is {word}. ")) == expected, word


def test_a_letter_after_a_vowel_sign_is_no_initial() -> None:
    assert texts(Segmenter(language="hi").push("यह ठीक. ")) == ["यह ठीक."]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("First\n\nSecond", ["First", "\n\nSecond"]),
        ("soft\nwrap", ["soft\nwrap"]),
        ("List:\n- one\n- two\n\nend", ["List:", "\n- one", "\n- two", "\n\nend"]),
        ("1. First item\n2. Second\nafter", ["1. First item", "\n2. Second", "\nafter"]),
        ("# Title\nText", ["# Title", "\nText"]),
        ("| a | b |\n|---|---|\n| 1 | 2 |", ["| a | b |", "\n|---|---|\n| 1 | 2 |"]),
        ("say\n-5 degrees", ["say\n-5 degrees"]),
    ],
)
def test_blocks_end_segments(text: str, expected: list[str]) -> None:
    assert segments_of(text) == expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("Steps:\n", "1. Open.\n2. Close", ["1. Open.", "\n2. Close"]),
        ("Steps:\n ", "1. Open it", ["1. Open it"]),
        ("Steps:\n    ", "1. Open it", ["1. Open it"]),
        ("Steps:\n    ", "  - a- b", ["  - a- b"]),
        ("Steps:\n    1", "0. Open it", ["0. Open it"]),
        ("    ", "# Title\nText", ["# Title", "\nText"]),
    ],
)
def test_a_block_begins_after_a_flush(before: str, after: str, expected: list[str]) -> None:
    """The white space or the half of a mark that a flush took from a line splits no word."""
    segmenter = Segmenter(first_clause=False)
    segmenter.push(before)
    segmenter.flush()
    assert texts(segmenter.push(after) + segmenter.flush()) == expected


def test_a_sentence_is_certain_at_white_space() -> None:
    """A segment does not wait for the first letter of the next sentence."""
    segmenter = Segmenter()
    assert texts(segmenter.push("It is done.")) == []
    assert texts(segmenter.push(" ")) == ["It is done."]
    assert texts(segmenter.push("好的。")) == []
    assert texts(segmenter.push("那")) == [" 好的。"]


def test_unspoken_text_waits() -> None:
    assert segments_of("🎉! --- Hello. 🎉") == ["🎉! --- Hello.", " 🎉"]
    assert segments_of("🎉! ") == ["🎉! "]
    assert segments_of("") == []


# Length


def test_a_long_sentence_is_split_at_a_clause() -> None:
    text = "one two three, four five six; seven eight nine ten eleven"
    assert segments_of(text, max_chars=40) == [
        "one two three, four five six;",
        " seven eight nine ten eleven",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("aaaa bbbb cccc dddd", ["aaaa bbbb", " cccc dddd"]),
        ("好" * 12, ["好" * 10, "好" * 2]),
        ("a" * 12, ["a" * 10, "a" * 2]),
        ("x" * 9 + "e\u0301\u0302z", ["x" * 9, "e\u0301\u0302z"]),
        ("好コーヒーパーティー", ["好コーヒーパーティー"]),
        ("好コーヒーコーパーティー", ["好コーヒーコーパー", "ティー"]),
        ("x" * 8 + "👩\u200d👩\u200d👧y", ["x" * 8, "👩\u200d👩\u200d👧y"]),
    ],
)
def test_a_long_clause_is_split_between_words(text: str, expected: list[str]) -> None:
    assert segments_of(text, max_chars=10) == expected


def test_the_first_clause_is_a_segment() -> None:
    text = "Well, of course I can, and I will, gladly. One two three, four."
    assert segments_of(text, first_clause=True) == [
        "Well, of course I can,",
        " and I will, gladly.",
        " One two three, four.",
    ]
    assert segments_of("当然可以，我们走吧，好吗", first_clause=True) == [
        "当然可以，",
        "我们走吧，好吗",
    ]


def test_a_first_sentence_without_clauses_does_not_wait() -> None:
    """A first segment of about eighty letters is split at white space."""
    first, rest = segments_of("many words " * 12, first_clause=True)
    assert 70 <= len(first) <= 90
    assert first.endswith(("many", "words"))
    assert rest


# Timers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello there.", ["Hello there."]),
        ("Well...  ", ["Well..."]),
        ('"Really?"', ['"Really?"']),
        ("It costs $3. ", ["It costs $3."]),
        ("It costs $3.", []),  # "$3.50"?
        ("Well...", ["Well..."]),
        ("好的。", ["好的。"]),
        ("Ask Dr.", []),
        ("1.", []),
        ("Hello", []),
        ("Hello,", []),
        ("🎉!", []),
        ("", []),
    ],
)
def test_settle_splits_at_a_sentence_end(text: str, expected: list[str]) -> None:
    """When writing stops, a mark at the end ends a sentence; an abbreviation does not."""
    segmenter = Segmenter()
    assert segmenter.push(text) == []
    assert texts(segmenter.settle()) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Yes, but the man who", ["Yes,"]),
        ("the man who", ["the man"]),
        ("the man who ", ["the man who"]),
        ("the price is $3.5", ["the price is"]),
        ("今天天气", ["今天天气"]),
        ("カー", []),
        ("カード", ["カー"]),
        ("今天，天气", ["今天，"]),
        ("It is done.", ["It is done."]),
        ("No.", ["No."]),
        ("one\ntwo", ["one"]),
        ("wor", []),
        ("🎉 ", []),
        ("", []),
    ],
)
def test_release_keeps_what_may_still_grow(text: str, expected: list[str]) -> None:
    """Pending text is split at a clause end, else after its last complete word."""
    segmenter = Segmenter()
    assert segmenter.push(text) == []
    assert texts(segmenter.release()) == expected


@pytest.mark.parametrize(
    "unit",
    ["a", "好", "word ", "Hello there. ", "!", "a) ", "\n", "- a\n", "。", "…", "1. ", ", ", '"']
    + ["a…", "\u0301", "😊", "e.g. ", "。) ", "a)))))"],
)  # fmt: skip
def test_time_is_linear(unit: str) -> None:
    """Eight times the text, pushed by characters, takes about eight times as long."""
    assert is_linear(lambda text: segments_of(*text, first_clause=True), unit)
    assert is_linear(lambda text: segments_of(*("x " + text), first_clause=True), unit)


def test_text_without_speech_is_not_searched_for_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner asks after every delta, so white space without end must cost nothing."""
    monkeypatch.delattr(module, "_visible_end")
    segmenter = Segmenter()
    for _ in range(5):
        assert segmenter.push("\n" * 100) == []
        assert not segmenter.ends_sentence


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("It costs 5 &euro; &amp; more of it", "It costs 5 &euro; &amp; more of it"),
        ("We have it &mdash; come", "We have it &mdash;"),
        ("We all have it; come", "We all have it;"),
        ("He likes AT&T; come", "He likes AT&T;"),
    ],
)
def test_the_semicolon_of_an_entity_ends_no_clause(text: str, first: str) -> None:
    """What the entity names decides."""
    assert segments_of(text, first_clause=True)[0] == first


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Call +49 30", " 1234567 now."),
        ("Call (555) 123-", "4567 now."),
        ("Run 12 k", "m now."),
        ("Run 12 ", "km now."),
        ("It is 10 000 0", "00 now."),
        ("Add 3 ", "1/2 cups."),
        ("Mail me@example.", "com now."),
        ("See www.example.", "com now."),
        ("At 3 p.", "m. we go."),
        ("It costs 5 &eu", "ro; now."),
    ],
)
def test_a_pause_divides_no_number_and_no_address(before: str, after: str) -> None:
    """What may go on is kept together over one pause, and is released after another."""
    segmenter = Segmenter(first_clause=False)
    segments = segmenter.push(before) + segmenter.settle() + segmenter.release()
    assert not any(set(segment.text) & set("0123456789@.") for segment in segments)
    rest = segmenter.push(after) + segmenter.flush()
    assert "".join(texts(segments + rest)) == before + after
    assert len(rest) == 1


def test_a_number_is_kept_over_one_pause() -> None:
    """Then it is released as it is; another one behind it is kept anew."""
    segmenter = Segmenter()
    segmenter.push("It costs $3.")
    assert texts(segmenter.release() + segmenter.release()) == ["It costs", " $3."]
    segmenter.push(" $4.")
    assert segmenter.release() == []
    assert texts(segmenter.release()) == [" $4."]
