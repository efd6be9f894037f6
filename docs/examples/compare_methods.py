"""Trains a few methods on few images of the embedded benchmark, and prints one row a method.

python docs/examples/compare_methods.py --methods seq,nsp2,simplecil --limit 1000 --passes 1
"""

import argparse

import cl_bench as cl

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--methods", default="seq,nsp2,simplecil")
parser.add_argument("--benchmark", default="glyphs/10")
parser.add_argument("--seeds", type=int, default=1)
parser.add_argument("--limit", type=int, default=1000, help="training images: a trial")
parser.add_argument("--passes", type=int, help="over the images of a task; default: the benchmark's own")
parser.add_argument("--threads", type=int, help="of the processor; default: all")
parser.add_argument("--results", default="results")
arguments = parser.parse_args()

settings = {"precision": "fp32"} | ({"passes": arguments.passes} if arguments.passes else {})
runs = cl.run(
    arguments.methods,
    benchmark=arguments.benchmark,
    seeds=arguments.seeds,
    limit=arguments.limit,
    set=settings,
    results=arguments.results,
    threads=arguments.threads,
)
metrics = runs.metrics()
for benchmark, on_it in metrics.groupby("benchmark"):
    means = on_it.groupby("label")[["accuracy", "forgetting"]].agg(["mean", "std"])
    print(f"{benchmark}\n{(100 * means).round(2).to_string()}")
