"""Train the network that names the phones of speech (`voiceagent_tts.aligner.online.phone_model`).

Speech is synthesized with known phones, disturbed, and learnt. Nothing is downloaded, and no
recording of a person is used, so that recordings of people stay a test.
"""
