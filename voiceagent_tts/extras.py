"""How to install the optional parts of this package, its extras."""


def install_hint(*extras: str) -> str:
    """Return the commands that install `extras`: from a package index, and in a clone."""
    names = ",".join(extras)
    return f"pip install 'voiceagent-tts[{names}]' (in a clone: pip install -e '.[{names}]')"
