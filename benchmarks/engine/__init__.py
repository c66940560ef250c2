"""How fast is the engine, stage by stage, and how does it compare with other runtimes?"""
