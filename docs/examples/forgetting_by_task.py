"""Draws how much of each task a method has forgotten in the end, from finished runs.

python docs/examples/forgetting_by_task.py --results results/reference --methods seq,nsp2 --out forgetting.png
"""

import argparse

import matplotlib

import cl_bench as cl

matplotlib.use("Agg")
from matplotlib import pyplot

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--results", default="results/reference")
parser.add_argument("--benchmark", default="glyphs/10")
parser.add_argument("--methods", default="seq,nsp2")
parser.add_argument("--out", default="forgetting.png")
arguments = parser.parse_args()

figure, axes = pyplot.subplots(figsize=(6, 3.2), layout="constrained")
for method in arguments.methods.split(","):
    matrix = cl.load(arguments.results).select(method, benchmark=arguments.benchmark).matrix()
    matrix["accuracy"] = matrix.correct / matrix.n
    last = matrix.after.max()
    earlier, final = matrix[matrix.after < last], matrix[(matrix.after == last) & (matrix.on < last)]
    best = earlier.groupby(["run_id", "on"]).accuracy.max()
    lost = 100 * (best - final.set_index(["run_id", "on"]).accuracy)
    by_task = lost.groupby("on").agg(["mean", "std"])
    axes.errorbar(by_task.index, by_task["mean"], by_task["std"], capsize=2, marker="o", label=method)
    print(
        f"{method}: {by_task['mean'].mean():.2f} points forgotten over {lost.index.nunique()} tasks and runs"
    )
axes.set_xlabel("task")
axes.set_ylabel("forgotten in the end (points)")
axes.legend()
figure.savefig(arguments.out, dpi=150)
