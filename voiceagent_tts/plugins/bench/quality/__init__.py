"""Quality of speech: words, voice, defects, joints, pronunciation and instructions."""
