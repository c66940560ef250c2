"""Which extras bring the packages that a command finds missing."""

import re
from collections.abc import Iterator

_DISTRIBUTION = "voiceagent-tts"
_EXTRA_OF_COMMAND = {"bench": "bench", "demo": "demo", "finetune": "train"}
_WITH_SERVER = {
    "server": ("server", "espeak"),
    "qwen3": ("server", "qwen3"),
    "hibari": ("server", "espeak", "hibari"),
    "kokoro": ("server", "kokoro"),
    "pocket": ("server", "espeak", "pocket"),
}
"""Extras that need those of a server."""


def packages_of(extra: str) -> Iterator[str]:
    """Return the names of the packages that an extra requires, those of its own extras included."""
    # Imported here: most processes name no extra, and it takes 14 ms.
    from importlib.metadata import requires

    for requirement in requires(_DISTRIBUTION) or ():
        name, marker = re.split(r"[^\w.-]", requirement, maxsplit=1)
        if not re.search(rf"extra == ['\"]{extra}['\"]", marker):
            continue
        if name == _DISTRIBUTION:
            for other in marker.partition("]")[0].split(","):
                yield from packages_of(other)
        else:
            yield name


def extras_with(module: str, command: str) -> tuple[str, ...]:
    """Return the extras to install where a command finds a module missing.

    Several extras may require its package. Then the command's own is meant, or one that most
    users have, or the smallest: `httpx` is part of training, but `serve` needs it, too.
    """
    from importlib.metadata import metadata

    extras = metadata(_DISTRIBUTION).get_all("Provides-Extra") or []
    packages = {extra: set(packages_of(extra)) for extra in extras if extra != "dev"}
    own = _EXTRA_OF_COMMAND.get(command, "server")
    having = {extra for extra, names in packages.items() if any(_has(n, module) for n in names)}
    for extra in (own, "server", "qwen3", *sorted(having, key=lambda each: len(packages[each]))):
        if extra in having:
            return _WITH_SERVER.get(extra, (extra,))
    return _WITH_SERVER.get(own, (own,))  # a package of a package


def _has(package: str, module: str) -> bool:
    """Whether a package, by the usual rules of names, brings a top-level module."""
    name, top = package.lower().replace("-", "_"), module.partition(".")[0].lower()
    return top in (name, name.removeprefix("py"), name.removeprefix("python_"), name.split("_")[0])
