"""What is asked for, before anything is trained: resolved runs, what is wrong with them, what they cost.

Called, it is `cl_bench.api.running.plan`.
"""

from cl_bench.callables import make_callable

make_callable(__name__, "cl_bench.api.running:plan")
