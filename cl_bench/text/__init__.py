"""Text that comes from users and text that goes to them: what may be read, what is safe where it is shown."""
