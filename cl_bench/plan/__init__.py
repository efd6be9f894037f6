"""What is asked for, before anything is trained: resolved runs, what is wrong with them, what they cost."""
