"""What learning a task does to old tasks' images, measured beside a run that does not notice."""
