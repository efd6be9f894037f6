"""Text that comes from users and text that goes to them: what may be read, and what is safe where it is shown."""
