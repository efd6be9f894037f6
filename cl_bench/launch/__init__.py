"""Many runs: a queue of them, a process each, their progress, and Dask beyond one machine."""
