"""This server as a Pipecat text-to-speech service: `VoiceAgentTTSService`."""

from voiceagent_tts.adapters.pipecat.service import VoiceAgentTTSService
from voiceagent_tts.adapters.pipecat.settings import VoiceAgentTTSSettings

__all__ = ["VoiceAgentTTSService", "VoiceAgentTTSSettings"]
