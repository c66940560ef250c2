"""Signs C2PA manifests in tests, and reads them; readers report these certificates as untrusted."""

import datetime
import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import c2pa
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from voiceagent_tts.plugins.provenance.manifest import Credentials

_VALID = datetime.timedelta(days=365)
_ROOT = "voiceagent-tts test root"
_SIGNER = "voiceagent-tts test signer"


@cache
def self_signed_credentials() -> Credentials:
    """Make a certificate authority and a certificate, which live as long as this process.

    C2PA refuses a certificate that signs itself, so the chain has two.
    """
    root_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    private_key = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    chain = (_certificate(_SIGNER, key, root_key), _certificate(_ROOT, root_key, root_key))
    pem = b"".join(each.public_bytes(serialization.Encoding.PEM) for each in chain)
    return Credentials(pem.decode(), private_key.decode())


def manifest_of(file: bytes, content_type: str) -> dict[str, Any]:
    """The assertions of a file's manifest by label; fails if the signature or the hash is wrong."""
    with c2pa.Reader(content_type, io.BytesIO(file)) as reader:
        store = json.loads(reader.json())
    assert store["validation_state"] == "Valid"
    manifest = store["manifests"][store["active_manifest"]]
    return {each["label"]: each["data"] for each in manifest["assertions"]}


def certificate_files(folder: Path) -> dict[str, Path]:
    made = self_signed_credentials()
    files = {"c2pa_certfile": folder / "chain.pem", "c2pa_keyfile": folder / "key.pem"}
    files["c2pa_certfile"].write_text(made.certificates)
    files["c2pa_keyfile"].write_text(made.private_key)
    return files


def _certificate(
    name: str, key: ec.EllipticCurvePrivateKey, root_key: ec.EllipticCurvePrivateKey
) -> x509.Certificate:
    """A certificate of `key`, with what C2PA 2.2, section 14.5.1, requires."""
    is_root = name == _ROOT
    usage = x509.KeyUsage(
        digital_signature=not is_root, key_cert_sign=is_root, crl_sign=is_root,
        content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(root_key.public_key())
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_x509_name(name))
        .issuer_name(_x509_name(_ROOT))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))  # for clocks that are behind
        .not_valid_after(now + _VALID)
        .add_extension(x509.BasicConstraints(ca=is_root, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(issuer, critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if not is_root:
        purposes = x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.EMAIL_PROTECTION])
        builder = builder.add_extension(purposes, critical=False)
    return builder.sign(root_key, hashes.SHA256())


def _x509_name(name: str) -> x509.Name:
    organization = x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "voiceagent-tts test")
    return x509.Name([organization, x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
