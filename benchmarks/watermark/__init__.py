"""Does the watermark survive, is it audible, what does it cost, and does unmarked audio pass?"""
