"""Counts the test images that one method gets right and another does not, by class, from stored predictions.

python docs/examples/where_two_methods_differ.py --results results/reference seq nsp2
"""

import argparse

import pandas as pd
from scipy.stats import binomtest

import cl_bench as cl

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("first")
parser.add_argument("second")
parser.add_argument("--results", default="results/reference")
parser.add_argument("--benchmark", default="glyphs/10")
arguments = parser.parse_args()


def answers(method: str) -> pd.DataFrame:
    """The last predictions of every run, by seed and test image."""
    runs = cl.load(arguments.results).select(method, benchmark=arguments.benchmark)
    parts = []
    for row in runs.table().itertuples():
        found = runs.predictions(row.run_id)
        parts.append(found[found.after == found.after.max()].assign(seed=row.order_seed))
    return pd.concat(parts).set_index(["seed", "image"])


first, second = (answers(method) for method in (arguments.first, arguments.second))
both = first.add_suffix("_first").join(second.add_suffix("_second"), how="inner")
right = {side: both[f"predicted_{side}"] == both[f"truth_{side}"] for side in ("first", "second")}
gained, lost = (~right["first"] & right["second"]).sum(), (right["first"] & ~right["second"]).sum()
p = binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
print(f"{arguments.second} is right where {arguments.first} is not: {gained} images; the other way: {lost}")
print(f"sign test over the images of all seeds, as if they were independent: p = {p:.2g}")
change = (right["second"].astype(int) - right["first"].astype(int)).groupby(both.truth_first).sum()
for what, classes in (("gained", change.nlargest(5)), ("lost", change.nsmallest(5))):
    print(f"most {what}:", ", ".join(f"class {c} {images:+d}" for c, images in classes.items()))
