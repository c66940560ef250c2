"""How fast does the server answer, and how many listeners does it carry?"""
