"""Draws how much of each task a method has forgotten in the end, from finished runs.

A curve is the mean over the seeds of one configuration on one benchmark.

python docs/examples/forgetting_by_task.py --results results/reference --methods seq,nsp2 --out forgetting.png
"""

import argparse
import sys

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

loaded = cl.load(arguments.results)
figure, axes = pyplot.subplots(figsize=(6, 3.2), layout="constrained")
for method in arguments.methods.split(","):
    runs = loaded.select(method, benchmark=arguments.benchmark)
    for lacking in runs.left_out:
        print(f"left out: {lacking}", file=sys.stderr)
    finished = runs.metrics().run_id
    if finished.empty:
        sys.exit(f"no run of {method} on {arguments.benchmark} is finished in {arguments.results}")
    matrix = runs.matrix()
    matrix["accuracy"] = matrix.correct / matrix.n
    for (label, benchmark), of_one in matrix[matrix.run_id.isin(finished)].groupby(["label", "benchmark"]):
        last = of_one.after.max()
        earlier, final = of_one[of_one.after < last], of_one[(of_one.after == last) & (of_one.on < last)]
        best = earlier.groupby(["run_id", "on"]).accuracy.max()
        lost = 100 * (best - final.set_index(["run_id", "on"]).accuracy)
        by_task = lost.groupby("on").agg(["mean", "std"]).astype(float)
        name = f"{label}\n{benchmark}"
        axes.errorbar(by_task.index, by_task["mean"], by_task["std"], capsize=2, marker="o", label=name)
        forgotten = f"{by_task['mean'].mean():.2f} points forgotten over {len(by_task)} tasks"
        print(f"{label}: {forgotten}, {of_one.run_id.nunique()} runs on {benchmark}")
axes.set_xlabel("task")
axes.set_ylabel("forgotten in the end (points)")
axes.legend(fontsize="x-small")
figure.savefig(arguments.out, dpi=150)
