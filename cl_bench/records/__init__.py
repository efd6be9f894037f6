"""What runs are and what came out of them: specifications, records on disk, metrics. Never imports torch."""
