"""Text to Kokoro's phonemes by espeak-ng, for the languages in which it was trained so.

espeak reads a clause at once, because words change beside each other, and may join or divide
them. So a clause is also read word by word, and its sounds belong to the words whose own sounds
they are most like.

Source: `espeak.py` of misaki, by which Kokoro's training texts were read, for the symbols.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from voiceagent_tts.espeak.catalogue import LANGUAGES, OTHER_LANGUAGES
from voiceagent_tts.espeak.library import EspeakLibrary
from voiceagent_tts.phonemes.reading import RUN, Phonemes, place_of
from voiceagent_tts.text.normalizer import normalize
from voiceagent_tts.text.readings import Said

_VOICES = LANGUAGES | {code: code for code in OTHER_LANGUAGES}
_MARKS = ';:,.!?—…¡¿"“”«»()[]।'
_SAID_MARKS = {"«": "“", "»": "”", "[": "(", "]": ")", "¡": "", "¿": "", "।": "."}
_TIE = "^"
_LANGUAGE_SWITCH = re.compile(r"\([a-z^-]+\)")
"""Before and after a word that is read as another language's, and with ties as sounds have them."""
_SYMBOLS = {
    "aɪ": "I", "aʊ": "W", "dz": "ʣ", "dʒ": "ʤ", "eɪ": "A", "oʊ": "O", "əʊ": "Q", "ss": "S",
    "ts": "ʦ", "tʃ": "ʧ", "ɔɪ": "Y",
}  # fmt: skip
"""Sounds of two symbols that Kokoro writes as one."""
_AFFRICATES = re.compile("t[sʃ]|d[zʒ]")
"""Written without a tie by most people."""
_WRITTEN = str.maketrans({"g": "ɡ", ":": "ː", "'": "ˈ", "’": "ˈ", "\u0361": _TIE, "\u035c": _TIE})
_UNCOMPARED = frozenset("ˈˌ ")
"""Marks that depend on a word's neighbours."""
_SYLLABLE_BORDERS = frozenset(".‿|/-^")


@dataclass(frozen=True, slots=True)
class _Run:
    """Characters between spaces: marks, what they enclose, and marks.

    Attributes:
        offset: offset in the context's text of what it says.
        lead: marks before it.
        trail: marks after it.
        ipa: its pronunciation, if it is not read.
    """

    text: str
    offset: int
    lead: str
    trail: str
    ipa: str | None = None


class EspeakPronouncer:
    """Reads a language with espeak-ng. Threads may share it."""

    def __init__(self, language: str, knows: Callable[[str], bool]) -> None:
        self._espeak = EspeakLibrary.open()
        code = _VOICES[language]
        voices = (each.identifier for each in self._espeak.voices() if each.language == code)
        self._voice = next(voices)
        self._language = language
        self._knows = knows

    def can_say(self, ipa: str) -> bool:
        """Whether Kokoro has each symbol of a pronunciation in IPA."""
        return self._phonemes_of(ipa) is not None

    def phonemes(self, said: Said) -> Phonemes:
        """Read a text; empty if there is nothing to say."""
        text, offsets = "", list[int]()
        for clause in _clauses(self._runs(normalize(said, self._language, reads_digits=True))):
            for run, sounds in zip(clause, self._sounds(clause), strict=True):
                written = f"{_said_marks(run.lead)}{sounds}{_said_marks(run.trail)}"
                known = "".join(filter(self._knows, written))
                if known:
                    text += known + " "
                    offsets += [run.offset] * (len(known) + 1)
        return Phonemes(text.rstrip(), tuple(offsets[: len(text.rstrip())]))

    def _runs(self, said: Said) -> Iterator[_Run]:
        at = 0
        for place, ipa in said.ipa:
            phonemes = self._phonemes_of(ipa)
            if phonemes is not None:
                yield from _split(said, at, place.start)
                yield _Run("", said.offsets[place.start], "", "", phonemes)
                at = place.stop
        yield from _split(said, at, len(said.text))

    def _phonemes_of(self, ipa: str) -> str | None:
        tied = _AFFRICATES.sub(lambda pair: _TIE.join(pair.group()), ipa.translate(_WRITTEN))
        phonemes = _symbols(tied).strip()
        return phonemes if phonemes and all(map(self._knows, phonemes)) else None

    def _sounds(self, clause: Sequence[_Run]) -> list[str]:
        texts = [run.text for run in clause]
        if not texts[0]:
            return [clause[0].ipa or ""]
        whole, *alone = map(self._read, [" ".join(texts), *texts])
        return _divided(whole, alone)

    def _read(self, text: str) -> str:
        ipa = self._espeak.ipa(text, self._voice, tie=_TIE)
        return _symbols(_LANGUAGE_SWITCH.sub("", ipa)).strip()


def _split(said: Said, start: int, end: int) -> Iterator[_Run]:
    for match in RUN.finditer(said.text, start, end):
        run = match.group()
        core = run.strip(_MARKS)
        lead = run[: len(run) - len(run.lstrip(_MARKS))] if core else ""
        yield _Run(core, place_of(match, said), lead, run[len(lead) + len(core) :])


def _clauses(runs: Iterator[_Run]) -> Iterator[list[_Run]]:
    """Runs that are read at once: between marks, and between pronunciations in IPA."""
    clause: list[_Run] = []
    for run in runs:
        is_apart = run.ipa is not None or not run.text
        if clause and (is_apart or clause[-1].trail or run.lead or not clause[-1].text):
            yield clause
            clause = []
        clause.append(run)
    if clause:
        yield clause


def _divided(whole: str, alone: Sequence[str]) -> list[str]:
    """Divide the sounds of a clause among its words, by what each sounds like alone."""
    places = [place for place, sound in enumerate(whole) if sound not in _UNCOMPARED]
    sounds = [(sound, owner) for owner, word in enumerate(alone) for sound in word]
    compared = [(sound, owner) for sound, owner in sounds if sound not in _UNCOMPARED]
    partners = _aligned([whole[place] for place in places], [sound for sound, _ in compared])
    parts, owner = [""] * len(alone), 0
    at = 0
    for place, partner in zip(places, partners, strict=True):
        owner = compared[partner][1] if compared else owner
        parts[owner] += whole[at : place + 1]  # with the stress and the space before it
        at = place + 1
    parts[owner] += whole[at:]
    return [part.strip() for part in parts]


def _aligned(some: Sequence[str], others: Sequence[str]) -> list[int]:
    """For each of `some`, the index of its partner in `others` by the least number of edits."""
    costs = [list(range(len(others) + 1))]
    for row, one in enumerate(some, start=1):
        above, line = costs[-1], [row]
        for column, other in enumerate(others):
            changed = above[column] + (one != other)
            line.append(min(changed, above[column + 1] + 1, line[column] + 1))
        costs.append(line)
    partners: list[int] = []
    row, column = len(some), len(others)
    while row:
        cost = costs[row][column]
        if column and cost == costs[row - 1][column - 1] + (some[row - 1] != others[column - 1]):
            row, column = row - 1, column - 1
            partners.append(column)
        elif cost == costs[row - 1][column] + 1:  # a sound that only `some` has
            row -= 1
            partners.append(max(0, column - 1))
        else:
            column -= 1
    return partners[::-1]


def _symbols(ipa: str) -> str:
    for pair, symbol in _SYMBOLS.items():
        ipa = ipa.replace(_TIE.join(pair), symbol)
    return "".join(character for character in ipa if character not in _SYLLABLE_BORDERS)


def _said_marks(marks: str) -> str:
    return "".join(_SAID_MARKS.get(mark, mark) for mark in marks)
