"""This server as a Pipecat text-to-speech service: `VoiceAgentTTSService`."""

from voiceagent_tts.adapters.pipecat.service import VoiceAgentTTSService, VoiceAgentTTSSettings

__all__ = ["VoiceAgentTTSService", "VoiceAgentTTSSettings"]
