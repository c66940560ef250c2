"""A voice whose lexicon takes as long to read as a test wants."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from voiceagent_tts.voices import LEXICON_SUFFIX, VoiceFolder

SLOW_VOICE = "en-gb"


@contextlib.contextmanager
def slow_lexicon(folder: Path) -> Iterator[None]:
    """Within the block, a context with `SLOW_VOICE` waits to be opened.

    Args:
        folder: the server's folder of voices; no context had this voice before.
    """
    (folder / f"{SLOW_VOICE}{LEXICON_SUFFIX}").write_text('nginx = "engine x"')
    may_end = threading.Event()
    read = VoiceFolder.read_lexicon

    def read_slowly(folder: VoiceFolder, name: str) -> object:
        entries = read(folder, name)
        may_end.wait()
        return entries

    with mock.patch.object(VoiceFolder, "read_lexicon", read_slowly):
        try:
            yield
        finally:
            may_end.set()
