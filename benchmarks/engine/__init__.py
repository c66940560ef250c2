"""What does a frame launch, and how does the engine compare with the official package?"""
