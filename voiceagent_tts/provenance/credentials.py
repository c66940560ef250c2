"""What signs C2PA manifests."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """A certificate chain and its private key, both in PEM form."""

    certificates: str
    private_key: str
