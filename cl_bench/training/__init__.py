"""The contract of a method, and the one loop that trains it."""
