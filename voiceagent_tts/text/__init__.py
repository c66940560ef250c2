"""The client's text: its words, sentences, segments and language, and what is spoken of it."""
