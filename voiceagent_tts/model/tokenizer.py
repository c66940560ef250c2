"""Convert text to token ids by byte-level BPE, at once or while the text arrives.

A turn is a role and its text, as in the model's training data. Ids returned while text is still
arriving are always a prefix of the ids of the whole text: characters that a later character could
merge with are held back. Control tokens in a text are treated as text. Knows no voices or prompts.

Source: vocab.json, merges.txt and tokenizer_config.json of the published models (Qwen2's
tokenizer); turns as in qwen-tts 0.1.1.
"""

import json
import unicodedata
from bisect import bisect_left
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

_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class Tokenizer:
    """Converts turns and texts to token ids.

    Args:
        folder: checkpoint folder with vocab.json and merges.txt.
        im_start: id that starts a turn.
        im_end: id that ends a turn.

    Raises:
        CheckpointError: a file is missing or invalid.
    """

    def __init__(self, folder: Path, im_start: int, im_end: int) -> None:
        self._im_start, self._im_end = im_start, im_end
        self._bpe, vocabulary = _read(folder)
        self._tokens = frozenset(vocabulary)
        self._sorted = sorted(vocabulary)
        self._longest = max(map(len, vocabulary))
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

        Args:
            text: normalised text, starting where the previous call stopped.
        """
        solid = _solid_length(text)
        ids: list[int] = []
        settled = 0
        for piece, (start, end) in self._pieces.pre_tokenize_str(text):
            if end >= solid:
                if start < solid - 1 and _is_word(text[start:solid]):
                    known = solid - 1 if _can_compose(text[solid - 1]) else end
                    length = self._settled_length(text[start:known], solid - 1 - start)
                    ids += self._ids(_mapped(text[start : start + length]))
                    settled = start + length
                break
            ids += self._ids(piece)
            settled = end
        return ids, text[settled:]

    def _ids(self, piece: str) -> list[int]:
        return [token.id for token in self._bpe.tokenize(piece)]

    def _settled_length(self, word: str, limit: int) -> int:
        """Return the longest prefix of `word`, up to `limit`, whose end no token can cross."""
        mapped = _mapped(word)
        for length in range(limit, 0, -1):
            if not self._is_crossed(mapped, len(_mapped(word[:length]))):
                return length
        return 0

    def _is_crossed(self, mapped: str, border: int) -> bool:
        """Whether a token could span `border`, for any continuation of `mapped`."""
        for start in range(max(0, border - self._longest + 1), border):
            if self._begins_token(mapped[start:]):
                return True
            ends = range(border + 1, min(len(mapped), start + self._longest) + 1)
            if any(mapped[start:end] in self._tokens for end in ends):
                return True
        return False

    def _begins_token(self, start: str) -> bool:
        place = bisect_left(self._sorted, start)
        return place < len(self._sorted) and self._sorted[place].startswith(start)


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


def _is_word(piece: str) -> bool:
    """Whether all characters but the first are letters, so the piece can grow only at its end."""
    return piece[1:].isalpha()


def _mapped(text: str) -> str:
    """Map the bytes of `text` to the printable characters that the vocabulary uses."""
    return "".join(piece for piece, _ in _BYTES.pre_tokenize_str(text))


_FROM_BYTES = decoders.ByteLevel()
_BYTES = ByteLevel(add_prefix_space=False, use_regex=False)
