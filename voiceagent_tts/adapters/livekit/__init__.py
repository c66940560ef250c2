"""This server as a LiveKit Agents text-to-speech plugin: `TTS`.

LiveKit's users import it as `livekit.plugins.voiceagent`.
"""

from voiceagent_tts.adapters.livekit.plugin import TTS, ChunkedStream, SynthesizeStream, Voice

__all__ = ["TTS", "ChunkedStream", "SynthesizeStream", "Voice"]
