"""Quality of speech: words, voice, defects, joints and pronunciation."""
