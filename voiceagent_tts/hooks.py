"""Finds what plugins add to the core, which knows none of them.

A plugin is a package in `voiceagent_tts/plugins`. Its modules with the names below are hooks:

- `commands.add_commands(app: typer.Typer)` adds commands of the command line;
- `server.add_to_server(hooks: ServerHooks)` adds routes, sockets, forms of errors, filters of audio
  and files, and background work; see `ServerHooks` in `voiceagent_tts.server.state`;
- `access.access_of(settings, metrics, on_end)` returns the keys and limits of a server, if its
  settings name some; see `voiceagent_tts.server.access`;
- `audio_files.file_filter(settings)` returns what changes the audio files of the command line, or
  None; see `voiceagent_tts.cli.files`;
- `certificates.certificate_of(settings)` returns the certificate of a server that ends TLS itself;
  see `voiceagent_tts.server.serve`;
- `kind.KIND` is a further engine; see `voiceagent_tts.seam.engine_kind`;
- `worker.KINDS` has, for each further kind of aligner, a function that makes it in its process.

Without the folder the rest is there all the same. One of its packages can be absent where no other
is built on it: the import contracts in `pyproject.toml` say which plugins are built on others.
"""

import importlib
import importlib.util
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import Literal

Hook = Literal["access", "audio_files", "certificates", "commands", "kind", "server", "worker"]

_ENGINES = ("engine", "hibari", "kokoro", "espeak")
"""Packages of the core's engines, which have a module `kind`, too; Qwen3-TTS's is `engine`."""

_PLUGINS = "voiceagent_tts.plugins"


def plugin_modules(hook: Hook) -> Iterator[ModuleType]:
    """Import and yield the modules of this name, in the order of the plugins' names."""
    folder = importlib.util.find_spec(_PLUGINS)
    if folder is None:
        return
    for plugin in pkgutil.iter_modules(folder.submodule_search_locations):
        name = f"{_PLUGINS}.{plugin.name}.{hook}"
        if importlib.util.find_spec(name) is not None:
            yield importlib.import_module(name)


def engine_modules() -> Iterator[ModuleType]:
    """Import and yield the modules `kind` of all engines, the core's first."""
    for package in _ENGINES:
        yield importlib.import_module(f"voiceagent_tts.{package}.kind")
    yield from plugin_modules("kind")
