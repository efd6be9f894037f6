"""Plugins: where they are, what their files say of themselves, how they are found, and groups of methods."""
