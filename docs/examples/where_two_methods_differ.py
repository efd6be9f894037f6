"""Counts the test images that one method gets right and another does not, by class, from stored predictions.

Runs of the same seeds are compared, of one configuration of each method on one benchmark.

python docs/examples/where_two_methods_differ.py --results results/reference seq nsp2
"""

import argparse
import sys

import pandas as pd
from scipy.stats import binomtest

import cl_bench as cl

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("first")
parser.add_argument("second")
parser.add_argument("--results", default="results/reference")
parser.add_argument("--benchmark", default="glyphs/10")
arguments = parser.parse_args()
loaded = cl.load(arguments.results)


def answers(method: str) -> pd.DataFrame:
    """The last predictions of every finished run, by benchmark, seeds (order, init and data) and image."""
    runs = loaded.select(method, benchmark=arguments.benchmark)
    for lacking in runs.left_out:
        print(f"left out: {lacking}", file=sys.stderr)
    finished = runs.metrics()
    if finished.family_id.nunique() != 1:
        known = "; ".join(sorted({f"{row.label} on {row.benchmark}" for row in finished.itertuples()}))
        sys.exit(f"{method}: expected runs of one configuration, found {known or 'none that is finished'}")
    if finished.seed.duplicated().any():
        sys.exit(f"{method}: several runs have the same seeds, {', '.join(finished.seed)}")
    parts = []
    for row in finished.itertuples():
        found = runs.predictions(row.run_id)
        last = found[found.after == found.after.max()]
        parts.append(last.assign(benchmark=row.benchmark_id, seeds=row.seed))
    return pd.concat(parts).set_index(["benchmark", "seeds", "image"])


first, second = (answers(method) for method in (arguments.first, arguments.second))
both = first.add_suffix("_first").join(second.add_suffix("_second"), how="inner", validate="1:1")
if both.empty:
    sys.exit(f"no run of {arguments.first} has the benchmark and seeds of one of {arguments.second}")
right = {side: both[f"predicted_{side}"] == both[f"truth_{side}"] for side in ("first", "second")}
gained, lost = (~right["first"] & right["second"]).sum(), (right["first"] & ~right["second"]).sum()
p = binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
print(f"{arguments.second} is right where {arguments.first} is not: {gained} images; the other way: {lost}")
pairs = len(both.index.unique("seeds"))
print(f"sign test over the images of {pairs} pairs of runs, as if they were independent: p = {p:.2g}")
change = (right["second"].astype(int) - right["first"].astype(int)).groupby(both.truth_first).sum()
for what, classes in (("gained", change.nlargest(5)), ("lost", change.nsmallest(5))):
    print(f"most {what}:", ", ".join(f"class {c} {images:+d}" for c, images in classes.items()))
