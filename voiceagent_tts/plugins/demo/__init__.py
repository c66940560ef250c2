"""`voiceagent-tts demo`: an agent that is interrupted, and what its history says afterwards."""
