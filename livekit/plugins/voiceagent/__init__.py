"""voiceagent-tts for LiveKit Agents: `voiceagent.TTS(url="ws://...")`.

The implementation is `voiceagent_tts.adapters.livekit`; this package has the name under which
LiveKit's users look for a plugin.
"""

from livekit.agents import Plugin

from livekit.plugins.voiceagent.log import logger
from livekit.plugins.voiceagent.models import Language, SampleRate
from livekit.plugins.voiceagent.version import __version__
from voiceagent_tts.adapters.livekit import TTS, ChunkedStream, SynthesizeStream, Voice

__all__ = [
    "TTS",
    "ChunkedStream",
    "Language",
    "SampleRate",
    "SynthesizeStream",
    "Voice",
    "__version__",
]


class VoiceAgentPlugin(Plugin):
    """Registers this plugin in LiveKit's list of plugins."""

    def __init__(self) -> None:
        super().__init__(__name__, __version__, __name__, logger)


Plugin.register_plugin(VoiceAgentPlugin())
