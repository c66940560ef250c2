"""`codec encode` and `codec decode`: convert an audio file to frames of codes, and back.

Codes are stored as NumPy's `.npz` with one array, `codes` [F, K] int16, codebook 0 first. Files are
checked before torch is loaded, which takes seconds.
"""

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from zipfile import BadZipFile

import typer

from voiceagent_tts.cli.progress import counted
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.reading import read_file

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from voiceagent_tts.model.codec import Codec

app = typer.Typer(help="Encode audio to codes, and decode codes to audio.", no_args_is_help=True)


def add_commands(root: typer.Typer) -> None:
    """Add `codec` to the command line."""
    root.add_typer(app, name="codec")


Model = Annotated[Path, typer.Option(help="Qwen3-TTS-12Hz model or codec: folder or id.")]

_MAX_ENCODED_S = 600.0
_MAX_CODES_BYTES = 2**26


@app.command()
def encode(
    source: Annotated[Path, typer.Argument(metavar="IN.wav", help="WAV, FLAC, MP3 or Ogg.")],
    target: Annotated[Path, typer.Argument(metavar="CODES.npz")],
    model: Model,
) -> None:
    """Encode an audio file of up to ten minutes to a file of codes."""
    from voiceagent_tts.cli.files import check_target
    from voiceagent_tts.plugins.recordings.file_reader import AudioLimits, read_audio_file

    check_target(target, (".npz",))
    limits = AudioLimits(
        min_s=0.001, max_s=_MAX_ENCODED_S, max_bytes=2**29, cpu_s=60, memory_bytes=2**31,
        may_be_silent=True,
    )  # fmt: skip
    _encode_samples(read_audio_file(source, limits), target, model)


@app.command()
def decode(
    source: Annotated[Path, typer.Argument(metavar="CODES.npz")],
    target: Annotated[
        Path, typer.Argument(metavar="OUT.wav", help=".wav, .flac, .ogg, .mp3 or .opus.")
    ],
    model: Model,
) -> None:
    """Decode a file of codes to an audio file."""
    from voiceagent_tts.cli.files import AUDIO_SUFFIXES, check_target

    check_target(target, AUDIO_SUFFIXES)
    codes = read_codes(source)
    _decode_codes(codes, source, target, model)


def _encode_samples(samples: "npt.NDArray[np.float32]", target: Path, model: Path) -> None:
    import numpy as np
    import torch

    from voiceagent_tts.hub import fetch_model
    from voiceagent_tts.plugins.recordings.codec_encoder import load_codec_encoder
    from voiceagent_tts.replacing import replacing

    encoder = load_codec_encoder(fetch_model(str(model)))
    with counted("encoding") as progress:
        codes = encoder.encode(torch.from_numpy(samples.copy()), progress)
    with replacing(target) as unfinished, unfinished.open("wb") as file:
        np.savez_compressed(file, codes=codes.numpy().astype(np.int16))


def _decode_codes(codes: "npt.NDArray[np.int64]", source: Path, target: Path, model: Path) -> None:
    import torch

    from voiceagent_tts.audio.pcm import float_to_pcm
    from voiceagent_tts.cli.files import write_audio
    from voiceagent_tts.hub import fetch_model
    from voiceagent_tts.model.codec import load_codec

    codec = load_codec(fetch_model(str(model)))
    check_codes(source, codes, codec)
    with counted("decoding") as progress:
        samples = codec.decode(torch.from_numpy(codes), progress)
    write_audio(target, float_to_pcm(samples.numpy()))


def read_codes(path: Path) -> "npt.NDArray[np.int64]":
    """Read a file of codes: [F, K] int64.

    Raises:
        InvalidRequestError: the file does not exist, or has another format or layout.
    """
    import numpy as np

    data = BytesIO(read_file(path, _MAX_CODES_BYTES))
    try:
        with np.load(data, allow_pickle=False) as arrays:
            codes = arrays["codes"]
    except (ValueError, OSError, TypeError, AttributeError, KeyError, BadZipFile) as error:
        raise InvalidRequestError(f"{path}: expected an .npz file with an array `codes`") from error
    if codes.dtype.kind not in "iu" or codes.ndim != 2 or not len(codes):
        raise InvalidRequestError(
            f"{path}: codes: expected integers [F, K]; got {codes.dtype} {list(codes.shape)}"
        )
    return codes.astype(np.int64)


def check_codes(path: Path, codes: "npt.NDArray[np.int64]", codec: "Codec") -> None:
    """Check that codes match this codec.

    Raises:
        InvalidRequestError: the number of codebooks differs, or a code is out of range.
    """
    if codes.shape[1] != codec.codebooks:
        raise InvalidRequestError(
            f"{path}: codes: expected {codec.codebooks} per frame; got {codes.shape[1]}"
        )
    if not 0 <= codes.min() <= codes.max() < codec.codebook_size:
        raise InvalidRequestError(
            f"{path}: codes: expected 0 to {codec.codebook_size - 1}; "
            f"got {codes.min()} to {codes.max()}"
        )
