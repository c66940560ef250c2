"""Do the aligners find the words that a listener has heard?"""
