"""What is asked for, before anything is trained: fully resolved runs, what is wrong with them, what they cost."""
