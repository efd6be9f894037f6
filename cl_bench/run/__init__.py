"""One run: a specification in, a record out, saved after every task and resumable there."""
