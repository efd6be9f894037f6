"""One run: a specification in, a record out. Called, it is `cl_bench.api.running.run`."""

from cl_bench.callables import make_callable

make_callable(__name__, "cl_bench.api.running:run")
