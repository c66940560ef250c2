"""A thin binding of espeak-ng: one text in, PCM and events out through a callback.

The library keeps its state in global variables and crashes when two threads enter it, so a process
has one `EspeakLibrary`, in which threads wait for each other.

Source: `speak_lib.h` of espeak-ng 1.52 for every number and structure layout.
"""

import atexit
import ctypes
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar, ParamSpec, TypeVar

import numpy as np

from voiceagent_tts.errors import EngineError
from voiceagent_tts.espeak.ipa import IpaTable, phoneme_names
from voiceagent_tts.espeak.readable import readable
from voiceagent_tts.extras import install_hint
from voiceagent_tts.seam.events import Gender

ESPEAK_RATE_HZ = 22_050

DEFAULT_PITCH = 50

_OUTPUT_SYNCHRONOUS = 2
_INITIALIZE_PHONEME_EVENTS = 0x0001
_INITIALIZE_DONT_EXIT = 0x8000  # without it espeak ends the process if it finds no data
_CHARS_UTF8 = 1
_PHONEMES_IN_BRACKETS = 0x100
_PRINTS_IPA = 2
_JOINS_SYMBOLS = 0x80  # by the character in bits 8 to 23
_END_PAUSE = 0x1000
_POSITION_CHARACTER = 1
_PHONEME_SEPARATOR = ord(" ") << 8
_RATE, _VOLUME, _PITCH, _RANGE = 1, 2, 3, 4
_FIXED = (_VOLUME, 100), (_RANGE, 50)
_OK = 0
_NOISE_SEED = 1
_MAX_VOICE_BYTES = 36
"""Longest voice or variant: espeak 1.52 copies a variant's name, with `!v/`, into 40 bytes."""

_CHUNK_MS = 200  # a cancel waits for one callback; 200 ms of audio take about 0.2 ms
_MAX_DATA_PATH = 150  # espeak_Initialize fails at 160


class EventType(IntEnum):
    """The kinds of espeak event that are reported."""

    WORD = 1
    END = 5
    PHONEME = 7


@dataclass(frozen=True, slots=True)
class SpeechEvent:
    """An event at a sample of the spoken text's audio.

    Attributes:
        char_index: 0-based index of the word in the text; a phoneme has its word's index, that of a
            pause is undefined.
        sample: position at 22,050 Hz from the first sample of this text.
        phoneme: espeak's name of the phoneme; pauses begin with "_". Empty for other kinds.
    """

    kind: EventType
    char_index: int
    sample: int
    phoneme: str = ""

    @property
    def is_pause(self) -> bool:
        """Whether silence begins here."""
        return self.phoneme.startswith("_")


@dataclass(frozen=True, slots=True)
class InstalledVoice:
    """A language voice in espeak's data: its identifier and its language."""

    identifier: str
    language: str


@dataclass(frozen=True, slots=True)
class InstalledVariant:
    """A timbre in espeak's data: its name, and the gender that its file states."""

    name: str
    gender: Gender | None = None


_turn = threading.RLock()
_P = ParamSpec("_P")
_R = TypeVar("_R")

OnChunk = Callable[[np.ndarray, list[SpeechEvent]], bool]
"""Receives int16 samples [S] at 22,050 Hz and the events up to their end; returns False to stop."""


class _EventId(ctypes.Union):
    _fields_ = [("number", ctypes.c_int), ("name", ctypes.c_char_p), ("string", ctypes.c_char * 8)]


class _Event(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int), ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int), ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int), ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p), ("id", _EventId),
    ]  # fmt: skip


class _Voice(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_char_p) for name in ("name", "languages", "identifier")),
        *((name, ctypes.c_ubyte) for name in ("gender", "age", "variant", "xx1")),
        ("score", ctypes.c_int),
        ("spare", ctypes.c_void_p),
    ]


_KNOWN_EVENTS = frozenset(EventType)
_Callback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event)
)


@dataclass(slots=True)
class _Synthesis:
    on_chunk: OnChunk
    is_stopped: bool = False
    failure: BaseException | None = None


def _in_turn(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make calls of a method wait while another thread is inside espeak."""

    @wraps(method)
    def waiting(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with _turn:
            return method(*args, **kwargs)

    return waiting


class EspeakLibrary:
    """The process's espeak-ng; `EspeakLibrary.open()` returns the only instance.

    Raises:
        EngineError: espeakng-loader is not installed, or espeak finds no data.
    """

    _instance: ClassVar["EspeakLibrary | None"] = None

    @classmethod
    def open(cls) -> "EspeakLibrary":
        """Return the process's instance."""
        with _turn:
            if cls._instance is None:
                cls._instance = cls()
            return cls._instance

    def __init__(self) -> None:
        self._voice: str | None = None
        self._run: _Synthesis | None = None
        self._ipa_tables: dict[str, IpaTable] = {}
        self._dll, self._data_path = _load()
        self._initialize(self._data_path)
        self._phoneme_names = phoneme_names(self._data_path / "phontab")
        # espeak keeps the pointer, so the callback object must live as long as the library.
        self._callback = _Callback(self._receive)
        self._dll.espeak_SetSynthCallback(self._callback)

    def _initialize(self, data_path: Path) -> None:
        options = _INITIALIZE_DONT_EXIT | _INITIALIZE_PHONEME_EVENTS
        path = _short_path(data_path)
        rate_hz = self._dll.espeak_Initialize(
            _OUTPUT_SYNCHRONOUS, _CHUNK_MS, str(path).encode(), options
        )
        if rate_hz != ESPEAK_RATE_HZ:
            raise EngineError(
                f"espeak-ng: expected {ESPEAK_RATE_HZ} Hz from the data in {path}, got {rate_hz}; "
                "try reinstalling espeakng-loader"
            )

    @property
    def version(self) -> str:
        """Version of espeak-ng, such as 1.52.0."""
        return self._dll.espeak_Info(None).decode().split()[0]

    @_in_turn
    def voices(self) -> list[InstalledVoice]:
        """List the language voices whose dictionary is installed."""
        voices = _read_voices(self._dll.espeak_ListVoices(None))
        return [voice for voice in voices if self._has_dictionary(voice)]

    def variants(self) -> list[InstalledVariant]:
        """List the variants that may follow a voice's `+`, sorted by name."""
        paths = sorted((self._data_path / "voices" / "!v").iterdir())
        return [InstalledVariant(path.name, _gender(path)) for path in paths]

    @_in_turn
    def synthesize(
        self,
        text: str,
        voice: str,
        words_per_minute: int,
        pitch: int,
        on_chunk: OnChunk,
        *,
        has_end_pause: bool = False,
        has_phonemes: bool = False,
    ) -> bool:
        """Speak `text`, passing each chunk to `on_chunk` as soon as it is generated.

        Event positions are characters of the text. `voice` is an `InstalledVoice.identifier`, with
        `+variant` if wanted; `words_per_minute` 80 to 450, `pitch` 0 to 99. The library stays
        usable after `on_chunk` has returned False. With `has_phonemes`, names of phonemes stand in
        double brackets, also in calls of `phonemes` that follow.

        Returns:
            Whether the whole text was spoken.

        Raises:
            EngineError: the voice is unknown, or espeak refused the text.
        """
        if "\0" in text:
            raise EngineError("expected a text without NUL characters, which end a text in espeak")
        self._set_voice(voice)
        self._set_prosody(words_per_minute, pitch)
        # The breath of some voices is noise, which espeak otherwise seeds from the time of day.
        self._dll.espeak_ng_SetRandSeed(ctypes.c_long(_NOISE_SEED))
        flags = (_END_PAUSE if has_end_pause else 0) | (
            _PHONEMES_IN_BRACKETS if has_phonemes else 0
        )
        run = self._run = _Synthesis(on_chunk)
        status = self._synth(text, flags)
        self._run = None
        if run.failure is not None:
            raise run.failure
        if status != _OK and not run.is_stopped:
            raise EngineError(
                f"espeak-ng could not speak a text of {len(text)} characters (status {status})"
            )
        return not run.is_stopped

    def _synth(self, text: str, flags: int) -> int:
        encoded = self._encoded(text) + b"\0"
        return self._dll.espeak_Synth(
            encoded, len(encoded), 0, _POSITION_CHARACTER, 0, _CHARS_UTF8 | flags, None, None
        )

    def _encoded(self, text: str) -> bytes:
        assert self._voice is not None
        return readable(text, self._voice).encode("utf-8", errors="replace")

    @_in_turn
    def load_voice(self, voice: str) -> None:
        """Load a voice's data now; the next call with another voice replaces it.

        Raises:
            EngineError: the voice is unknown.
        """
        self._set_voice(voice)

    @_in_turn
    def phonemes(self, text: str, voice: str) -> list[str]:
        """Names of the phonemes of `text`, without pauses and language marks."""
        self._set_voice(voice)
        names = self._phonemes(text, _PHONEME_SEPARATOR).split()
        return [name for name in names if not name.startswith(("_", "("))]

    @_in_turn
    def ipa(self, text: str, voice: str, *, tie: str) -> str:
        """Return the IPA of `text`: spaces between words, and `tie` in sounds of two symbols."""
        self._set_voice(voice)
        return self._phonemes(text, _PRINTS_IPA | _JOINS_SYMBOLS | ord(tie) << 8)

    @_in_turn
    def ipa_table(self, voice: str) -> IpaTable:
        """Return the IPA that a voice can say; the first call takes some 5 ms.

        A variant changes the timbre, not the sounds. So clients, who may name any of thousands of
        variants, make no more tables than there are voices.

        Raises:
            EngineError: the voice is unknown.
        """
        voice, _, _ = voice.partition("+")
        table = self._ipa_tables.get(voice)
        if table is None:
            self._set_voice(voice)
            self._synth("", _PHONEMES_IN_BRACKETS)  # `_phonemes` reads brackets from now on
            table = IpaTable(self._phoneme_names, self._ipa_of)
            self._ipa_tables[voice] = table
        return table

    def _ipa_of(self, name: str) -> str:
        """IPA of a phoneme before a vowel: at the end of a word, some languages change it."""
        vowel = self._phonemes("[[a]]", _PRINTS_IPA).strip()
        both = self._phonemes(f"[[{name}|a]]", _PRINTS_IPA).strip()
        return both.removesuffix(vowel)

    def _phonemes(self, text: str, mode: int) -> str:
        buffer = ctypes.create_string_buffer(self._encoded(text))
        position = ctypes.c_void_p(ctypes.addressof(buffer))
        clauses: list[str] = []
        while position.value:
            clause: bytes = self._dll.espeak_TextToPhonemes(
                ctypes.byref(position), _CHARS_UTF8, mode
            )
            clauses.append(clause.decode("utf-8", errors="replace"))
        return " ".join(clauses)

    def _set_voice(self, voice: str) -> None:
        # Loading a dictionary takes up to 2 ms, as long as speaking a sentence.
        if voice == self._voice:
            return
        encoded = voice.encode()
        if max(map(len, encoded.split(b"+", 1))) > _MAX_VOICE_BYTES or b"\0" in encoded:
            raise EngineError(f"espeak-ng has no voice {voice[:_MAX_VOICE_BYTES]!r}")
        self._voice = None
        if self._dll.espeak_SetVoiceByName(encoded) != _OK:
            raise EngineError(f"espeak-ng has no voice {voice!r}")
        self._voice = voice

    def _set_prosody(self, words_per_minute: int, pitch: int) -> None:
        for parameter, value in ((_RATE, words_per_minute), (_PITCH, pitch), *_FIXED):
            if self._dll.espeak_SetParameter(parameter, value, 0) != _OK:
                raise EngineError(f"espeak-ng refused the value {value} for parameter {parameter}")

    def _receive(self, samples: Any, count: int, events: Any) -> int:
        """Pass a chunk on; an exception is kept for the caller, as ctypes would only print it."""
        run = self._run
        if run is None or run.is_stopped:
            return 1
        try:
            pcm = ctypes.string_at(samples, count * 2) if samples else b""
            chunk = np.frombuffer(pcm, np.int16)
            run.is_stopped = not run.on_chunk(chunk, list(_read_events(events)))
        except BaseException as failure:  # including KeyboardInterrupt, which C code would swallow
            run.failure, run.is_stopped = failure, True
        return int(run.is_stopped)

    def _has_dictionary(self, voice: InstalledVoice) -> bool:
        definition = self._data_path / "lang" / voice.identifier
        name = definition.name.split("-")[0].lower()
        for line in definition.read_text(encoding="utf-8").splitlines():
            if line.startswith("dictionary "):
                name = line.split()[1]
        return (self._data_path / f"{name}_dict").exists()


def _load() -> tuple[Any, Path]:
    """Open the shared library and declare the functions whose C types are not int."""
    try:
        import espeakng_loader
    except ImportError as error:
        raise EngineError(
            f"the embedded voice needs espeakng-loader; try {install_hint('espeak')}"
        ) from error
    dll = ctypes.CDLL(espeakng_loader.get_library_path())
    dll.espeak_ListVoices.restype = ctypes.POINTER(ctypes.POINTER(_Voice))
    dll.espeak_Info.restype = ctypes.c_char_p
    dll.espeak_TextToPhonemes.restype = ctypes.c_char_p
    dll.espeak_Synth.argtypes = [
        ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint, ctypes.c_int, ctypes.c_uint,
        ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p,
    ]  # fmt: skip
    return dll, Path(espeakng_loader.get_data_path())


def _short_path(data_path: Path) -> Path:
    """`data_path`, or a link to it that is short enough for espeak's buffers."""
    if len(str(data_path).encode()) <= _MAX_DATA_PATH:
        return data_path
    directory = tempfile.TemporaryDirectory(prefix="espeak-")
    atexit.register(directory.cleanup)
    link = Path(directory.name) / "espeak-ng-data"
    link.symlink_to(data_path, target_is_directory=True)
    return link


def _read_voices(table: Any) -> Iterator[InstalledVoice]:
    for pointer in table:
        if not pointer:
            return
        voice = pointer.contents
        # `languages` is a priority byte followed by the code.
        yield InstalledVoice(voice.identifier.decode(), voice.languages[1:].decode().lower())


def _gender(path: Path) -> Gender | None:
    """The gender that a variant's file states, in a line such as `gender female 30`."""
    for line in path.read_text(errors="replace").splitlines():
        match line.casefold().split():
            case ["gender", "female", *_]:
                return "female"
            case ["gender", "male", *_]:
                return "male"
            case _:
                pass
    return None


def _read_events(events: Any) -> Iterator[SpeechEvent]:
    for event in events:
        if event.type == 0:
            return
        if event.type in _KNOWN_EVENTS:
            kind = EventType(event.type)
            name = event.id.string.decode("utf-8", errors="replace")
            is_phoneme = kind is EventType.PHONEME
            yield SpeechEvent(
                kind, event.text_position - 1, event.sample, name if is_phoneme else ""
            )
