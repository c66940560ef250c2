"""A full stop ends a sentence unless it belongs to an abbreviation, ordinal or list number."""

import pytest

from voiceagent_tts.text.sentences import Ending, ending_of, ends_sentence_before


@pytest.mark.parametrize(
    ("before", "marks", "ending"),
    [
        ("Hello there.", ".", Ending.SENTENCE),
        ("I will do it.", ".", Ending.SENTENCE),
        ("It costs $42.50.", ".", Ending.SENTENCE),
        ("(as you see).", ".", Ending.SENTENCE),
        ("\ud83d done.", ".", Ending.SENTENCE),
        ("in 2024.", ".", Ending.SENTENCE),
        ("Really?!", "?!", Ending.SENTENCE),
        ("What...?", "...?", Ending.SENTENCE),
        ("好。", "。", Ending.SENTENCE),
        ("Dr.", ".", Ending.UNDECIDED),
        ("see Mme.", ".", Ending.UNDECIDED),
        ("so, z. B.", ".", Ending.UNDECIDED),
        ("am 3.", ".", Ending.UNDECIDED),
        ("Well...", "...", Ending.UNDECIDED),
        ("Well…", "…", Ending.UNDECIDED),
        ("\n1.", ".", Ending.NONE),
        ("no mark", "", Ending.NONE),
    ],
)
def test_a_mark_ends_undecided_or_nothing(before: str, marks: str, ending: Ending) -> None:
    """Certain ends are decided before the next word comes; uncertain ones wait for it."""
    assert ending_of(before, marks, None) is ending


@pytest.mark.parametrize(
    ("before", "following", "is_end"),
    [
        ("Dr.", "Smith", False),
        ("see M.", "Dupont", False),
        ("or e.g.", "this", False),
        ("the U.S.", "troops", False),
        ("am 3.", "Oktober", False),
        ("im 19.", "Jahrhundert", False),
        ("in no.", "5", False),
        ("on the 5.", "Then", True),
        ("Well...", "maybe", False),
        ("Well...", "Maybe", True),
        ("Well…", "", True),
        ("Plan B.", "We", True),
    ],
)
def test_the_next_word_decides(before: str, following: str, is_end: bool) -> None:
    """A lower-case letter never begins a sentence, and a name follows its title."""
    assert ends_sentence_before(before, following, None) is is_end


def test_a_known_language_has_only_its_own_abbreviations() -> None:
    """`Sig.` is an Italian abbreviation; `min.` is one in English and others, not in French."""
    assert ending_of("Ecco il Sig.", ".", "it") is Ending.UNDECIDED
    assert ending_of("Le bus part dans cinq min.", ".", "fr") is Ending.SENTENCE
    assert ending_of("The bus leaves in five min.", ".", "en-gb") is Ending.UNDECIDED
