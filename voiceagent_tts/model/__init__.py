"""The Qwen3-TTS network: functions of weights, input and state. Knows no requests and no clock."""
