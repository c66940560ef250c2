"""C2PA manifests: signed statements inside of a file that say how its audio was made.

WAV, MP3 and FLAC have a place for one; Ogg, AAC and raw samples have none. Needs the
package `c2pa-python`.
"""

import importlib.util
import io
import json
from dataclasses import dataclass
from pathlib import Path

from voiceagent_tts import __version__
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.plugins.speech.containers import wav_header
from voiceagent_tts.protocol.messages import ProvenanceFields
from voiceagent_tts.settings.group import refused
from voiceagent_tts.settings.plugins import ProvenanceSettings

MANIFEST_TYPES = {"wav": "audio/wav", "mp3": "audio/mpeg", "flac": "audio/flac"}
"""Content types of the formats that can have a manifest."""

_SOURCE_TYPES = "http://cv.iptc.org/newscodes/digitalsourcetype/"
_LABEL = "org.voiceagent-tts.provenance"


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """A certificate chain and its private key, both in PEM form."""

    certificates: str
    private_key: str


def _pem(setting: str, path: Path) -> str:
    try:
        return path.expanduser().read_text("ascii")
    except OSError as error:
        raise InvalidRequestError(f"{setting}: {refused(path, error)}") from error
    except UnicodeDecodeError as error:
        raise InvalidRequestError(
            f"{setting}: expected a file in PEM form, got {path} ({error.reason})"
        ) from error


def credentials_of(settings: ProvenanceSettings) -> Credentials | None:
    """Return what signs the files of a server or a command; None if files are not signed.

    Raises:
        InvalidRequestError: a file cannot be read, the certificate cannot sign, or the package
            `c2pa-python` is missing.
    """
    if settings.c2pa_certfile is None or settings.c2pa_keyfile is None:
        return None
    credentials = Credentials(
        _pem("c2pa_certfile", settings.c2pa_certfile), _pem("c2pa_keyfile", settings.c2pa_keyfile)
    )
    if importlib.util.find_spec("c2pa") is None:
        raise InvalidRequestError(
            "c2pa_certfile: the package 'c2pa' is missing; install c2pa-python"
        )
    nobody = ProvenanceFields(sha256=None, model="none", time="", key_id=None)
    sign(credentials, _tiny_wav(), "wav", nobody)
    return credentials


def sign(
    credentials: Credentials,
    file: bytes | bytearray,
    audio_format: str,
    provenance: ProvenanceFields,
) -> bytes:
    """Return a complete file with a manifest; its samples are the same.

    A file of a format that cannot have one is returned as it is.

    Raises:
        InvalidRequestError: the certificate cannot sign, or the file is damaged.
    """
    if audio_format not in MANIFEST_TYPES:
        return bytes(file)
    import c2pa

    signed = io.BytesIO()
    try:
        info = c2pa.C2paSignerInfo(
            _algorithm(credentials),
            credentials.certificates.encode(),
            credentials.private_key.encode(),
            None,
        )
        with (
            c2pa.Signer.from_info(info) as signer,
            c2pa.Builder(json.dumps(_manifest(audio_format, provenance))) as builder,
        ):
            builder.sign(signer, MANIFEST_TYPES[audio_format], io.BytesIO(file), signed)
    except c2pa.C2paError as error:
        raise InvalidRequestError(
            f"the C2PA manifest cannot be signed ({error}); check c2pa_certfile and c2pa_keyfile",
            code=ErrorCode.INVALID_PARAM,
        ) from error
    return signed.getvalue()


def _manifest(audio_format: str, provenance: ProvenanceFields) -> dict[str, object]:
    """Source: C2PA Technical Specification 2.2, sections 18.15 (actions) and 19 (metadata)."""
    # IPTC distinguishes rules, such as espeak's, from models that were trained on recordings.
    is_trained = not provenance.model.startswith("espeak")
    source_type = "trainedAlgorithmicMedia" if is_trained else "algorithmicMedia"
    action = {"action": "c2pa.created", "digitalSourceType": _SOURCE_TYPES + source_type}
    return {
        "claim_generator_info": [{"name": "voiceagent-tts", "version": __version__}],
        "format": MANIFEST_TYPES[audio_format],
        "title": "Synthetic speech",
        "assertions": [
            {"label": "c2pa.actions", "data": {"actions": [action]}},
            {"label": _LABEL, "data": provenance.model_dump()},
        ],
    }


def _algorithm(credentials: Credentials) -> bytes:
    """C2PA's name of the signature algorithm, which depends on the key's curve."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    names = {256: b"es256", 384: b"es384", 521: b"es512"}
    try:
        key = serialization.load_pem_private_key(credentials.private_key.encode(), password=None)
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"c2pa_keyfile: expected a PEM key ({error})") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.key_size not in names:
        raise InvalidRequestError("c2pa_keyfile: expected a key of P-256, P-384 or P-521")
    return names[key.curve.key_size]


def _tiny_wav() -> bytes:
    return wav_header(SAMPLE_RATE_HZ, 480) + bytes(480)
