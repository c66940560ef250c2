"""Convert text to token ids by byte-level BPE, at once or while the text arrives.

A turn is a role and its text, as in the model's training data. Ids returned while text is still
arriving are a prefix of the ids of the whole text: characters that a later character could merge
with are held back. Only a word that would hold back more than 256 letters is divided anywhere,
because all of them are examined again with every part of the text. Control tokens in a text are
treated as text.

Source: vocab.json, merges.txt and tokenizer_config.json of the published models (Qwen2's
tokenizer); turns as in qwen-tts 0.1.1.
"""

import json
import re
import unicodedata
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from tokenizers import Regex, decoders
from tokenizers.models import BPE
from tokenizers.normalizers import NFC
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

from voiceagent_tts.errors import CheckpointError

ROLE_TOKENS = 3
"""Number of ids before the text of a turn: start of turn, role, line end."""

_MOST_HELD_CHARS = 256
"""No word has more letters without a place to divide it, but the same syllable again and again."""

_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_IN_WORDS = re.compile(r"(?s:.)[A-Za-z\x80-\xff\u0122-\u0143]*")
"""Tokens that can be a part of a word. Bytes from 0x80 on, of other letters, are mapped to the
characters from `\\x80`."""


class Tokenizer:
    """Converts turns and texts to token ids.

    Raises:
        CheckpointError: a file is missing or invalid.
    """

    def __init__(self, folder: Path, im_start: int, im_end: int) -> None:
        self._im_start, self._im_end = im_start, im_end
        self._bpe, vocabulary = _read(folder)
        self._word_tokens = frozenset(filter(_IN_WORDS.fullmatch, vocabulary))
        self._beginnings = _beginnings(self._word_tokens)
        self._longest = max(map(len, self._word_tokens))
        self._nfc = NFC()
        self._pieces = Sequence(
            [Split(Regex(_PIECES), "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)]
        )

    def encode_turn(self, role: str, text: str) -> list[int]:
        """Encode a turn without its end; the text starts at index `ROLE_TOKENS`."""
        return [self._im_start, *self.encode(self.normalize(f"{role}\n{text}"))]

    def encode_closed_turn(self, role: str, text: str) -> list[int]:
        """Encode a turn with its end."""
        return [*self.encode_turn(role, text), self._im_end, *self.encode("\n")]

    def open_turn(self, role: str) -> "OpenTurn":
        """Start a turn whose text arrives in parts."""
        return OpenTurn(self, role, self._im_start)

    def normalize(self, text: str) -> str:
        """Apply canonical composition (NFC)."""
        if text.isascii():
            return text
        return self._nfc.normalize_str(text)

    def encode(self, text: str) -> list[int]:
        """Encode a normalised text or a part of one."""
        pieces = self._pieces.pre_tokenize_str(text)
        return [id for piece, _ in pieces for id in self._ids(piece)]

    def decode(self, ids: Iterable[int]) -> str:
        """Decode ids from `encode`."""
        return _FROM_BYTES.decode([self._bpe.id_to_token(id) or "" for id in ids])

    def encode_settled(self, text: str) -> tuple[list[int], str]:
        """Encode the part of `text` that no continuation can change; return ids and the rest.

        `text` is normalised, and starts with the rest of the previous call.
        """
        solid = _solid_length(text)
        ids: list[int] = []
        settled = 0
        for piece, (start, end) in self._pieces.pre_tokenize_str(text):
            if end >= solid:
                # A piece of letters but for the first character can grow only at its end.
                if start < solid - 1 and text[start + 1 : solid].isalpha():
                    known = solid - 1 if _can_compose(text[solid - 1]) else end
                    limit = solid - 1 - start
                    length = self._settled_length(text[start:known], limit)
                    if limit - length > _MOST_HELD_CHARS:
                        length = limit
                    ids += self._ids(_mapped(text[start : start + length]))
                    settled = start + length
                break
            ids += self._ids(piece)
            settled = end
        return ids, text[settled:]

    def _ids(self, piece: str) -> list[int]:
        return [token.id for token in self._bpe.tokenize(piece)]

    def _settled_length(self, word: str, limit: int) -> int:
        """Return the longest prefix of `word`, up to `limit`, whose end no token can cross.

        Only prefixes of which less than the length of a token follows are judged: the others were,
        when less followed, or are not found in words.
        """
        mapped = _mapped(word)
        first = max(0, len(mapped) - 2 * self._longest)
        reached = first + self._longest if first else 0  # borders before it are not judged
        settled = 0
        border = at = 0
        for length in range(1, limit + 1):
            border += len(word[length - 1].encode())
            for start in range(max(at, first), border):
                reached = max(reached, self._reach(mapped, start))
            at = border
            if reached > len(mapped):
                break
            if reached <= border:
                settled = length
        return settled

    def _reach(self, mapped: str, start: int) -> int:
        """Return the end of the longest token at `start`.

        It lies behind `mapped` where a continuation could make the token longer than that.
        """
        reached = end = start + 1
        while mapped[start:end] in self._beginnings:
            if end == len(mapped):
                return end + 1
            end += 1
            if mapped[start:end] in self._word_tokens:
                reached = end
        return reached


class OpenTurn:
    """Encodes a turn whose text arrives in parts, to the ids of the whole text."""

    def __init__(self, tokenizer: Tokenizer, role: str, start: int) -> None:
        self._tokenizer = tokenizer
        self._start = [start]
        self._rest = f"{role}\n"

    def push(self, text: str) -> list[int]:
        """Add text; return the ids that are now final, starting with those before the text."""
        ids, self._rest = self._tokenizer.encode_settled(
            self._tokenizer.normalize(self._rest + text)
        )
        return self._take_start() + ids

    def finish(self) -> list[int]:
        """End the text; return the ids that were held back."""
        rest, self._rest = self._rest, ""
        return self._take_start() + self._tokenizer.encode(rest)

    def _take_start(self) -> list[int]:
        start, self._start = self._start, []
        return start


def _beginnings(tokens: Iterable[str]) -> frozenset[str]:
    return frozenset(token[:end] for token in tokens for end in range(1, len(token)))


def _read(folder: Path) -> tuple[BPE, dict[str, int]]:
    path = folder / "vocab.json"
    try:
        vocabulary = json.loads(path.read_bytes())
        path = folder / "merges.txt"
        lines = path.read_text("utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: expected a tokenizer file; {error}") from error
    merges = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
    try:
        return BPE(vocabulary, merges), vocabulary  # type: ignore[arg-type]
    except Exception as error:  # the library raises bare Exception
        raise CheckpointError(f"{path}: does not fit vocab.json; {error}") from error


def _solid_length(text: str) -> int:
    """Return the length without trailing white space and combining marks.

    The character before them may still change, by composition or by a longer run.
    """
    length = len(text)
    while length and (text[length - 1].isspace() or unicodedata.combining(text[length - 1])):
        length -= 1
    return length


def _can_compose(character: str) -> bool:
    """Whether a following accent or jamo may compose with this character."""
    is_open_syllable = "가" <= character <= "힣" and (ord(character) - ord("가")) % 28 == 0
    return is_open_syllable or "ᄀ" <= character <= "ᄒ" or character in _composing()


@cache
def _composing() -> frozenset[str]:
    """Return the first characters of all canonical compositions in Unicode."""
    pairs = (unicodedata.decomposition(chr(code)).split() for code in range(0x20000))
    return frozenset(
        chr(int(pair[0], 16)) for pair in pairs if len(pair) == 2 and "<" not in pair[0]
    )


def _mapped(text: str) -> str:
    return "".join(piece for piece, _ in _BYTES.pre_tokenize_str(text))


_FROM_BYTES = decoders.ByteLevel()
_BYTES = ByteLevel(add_prefix_space=False, use_regex=False)
