"""Train the network that names the phones of speech (`voiceagent_tts.aligner.online.phone_model`).

Speech is synthesized with known phones, disturbed, and learnt. No recording of a person is used, so
that recordings of people stay a test. Debian has all that it needs:

    apt-get install libflite1 festival festvox-kdlpc16k \
        fortunes fortunes-br fortunes-de fortunes-es fortunes-it fortunes-ru fortunes-zh \
        manpages-fr manpages-ja
"""
