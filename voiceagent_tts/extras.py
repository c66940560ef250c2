"""How to install the optional parts of this package, its extras."""


def install_hint(*extras: str) -> str:
    """Return the command that adds `extras` to the environment that has this package.

    It works in any folder, for a clone and for a wheel, and asks no index for the package itself.
    """
    return f"pip install 'voiceagent-tts[{','.join(extras)}]'"
