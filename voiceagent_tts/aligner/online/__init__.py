"""The online aligner: speech and its text become word times while the speech is made."""
