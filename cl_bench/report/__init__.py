"""Tables and plots recomputed from run records; needs neither torch nor a GPU."""
