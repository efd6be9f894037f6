"""Logs as other suites write them, made of a lower triangle of counts of right answers and test sizes."""

from collections.abc import Sequence

import yaml

Rows = Sequence[Sequence[int]]  # right answers on task j after task t


def shares(rows: Rows, sizes: Sequence[int], digits: int | None = 2) -> list[list[float]]:
    """In percent, rounded as a suite rounds."""
    found = [[100 * count / size for count, size in zip(row, sizes, strict=False)] for row in rows]
    return found if digits is None else [[round(value, digits) for value in row] for row in found]


def over_images(rows: Rows, sizes: Sequence[int]) -> list[float]:
    """The averages weighted by images, in percent."""
    return [round(100 * sum(row) / sum(sizes[: len(row)]), 2) for row in rows]


def pilot(rows: Rows, sizes: Sequence[int], seed=1993, classes=None, numpy=False, groups=True) -> str:
    """What PILOT's trainer logs of a run."""
    classes = classes or [10] * len(sizes)
    number = (lambda value: f"np.float64({value})") if numpy else str
    begin = "2024-05-01 10:00:00,123 [trainer.py] => "
    lines = [f"{begin}prefix: reproduce", f"{begin}init_cls: {classes[0]}", f"{begin}seed: {seed}"]
    curve, starts = [], [sum(classes[:place]) for place in range(len(classes) + 1)]
    for row, average in zip(shares(rows, sizes), over_images(rows, sizes), strict=True):
        curve.append(average)
        names = [f"{starts[place]:02d}-{starts[place + 1] - 1:02d}" for place in range(len(row))]
        pairs = {"total": average, **dict(zip(names, row, strict=True)), "old": 0, "new": row[-1]}
        grouped = ", ".join(f"'{key}': {number(value)}" for key, value in pairs.items())
        lines.append(f"{begin}Task {len(curve) - 1}, Epoch 20/20 => Loss 0.1, Train_accy 99.0")
        lines += [f"{begin}No NME accuracy."] + [f"{begin}CNN: {{{grouped}}}"] * groups
        listed = ", ".join(map(number, curve))
        lines += [f"{begin}CNN top1 curve: [{listed}]", f"{begin}CNN top5 curve: [{listed}]", ""]
        lines += [f"{begin}CNN top1 task curve: [{listed}]", f"Average Accuracy (CNN): {average}"]
    return "\n".join([*lines, f"{begin}Forgetting (CNN): 3.2"]) + "\n"


def mammoth_file(rows: Rows, sizes: Sequence[int], seed=0, numpy=False, matrix=True) -> str:
    """A line of logs.pyd."""
    values = {"dataset": "seq-cifar100", "model": "l2p", "seed": seed, "conf": "<object at 0x7f>"}
    exact = shares(rows, sizes, None)
    values |= {f"accmean_task{t}": sum(row) / t for t, row in enumerate(exact, 1)}
    for t, row in enumerate(exact, 1):
        if matrix:
            values |= {f"accuracy_{j}_task{t}": value for j, value in enumerate(row, 1)}
    values |= {"forward_transfer": None, "forgetting": 3.25}
    text = str(values)
    return (text.replace(": 100.0", ": np.float64(100.0)") if numpy else text) + "\n"


def mammoth_print(rows: Rows, sizes: Sequence[int], seed=0, raw=True) -> str:
    """What Mammoth prints, with an evaluation between epochs and one of the future."""
    lines = [f"Namespace(dataset='seq-cifar100', seed={seed}, lr=0.1)"]
    for t, row in enumerate(shares(rows, sizes, None), 1):
        mean = round(sum(row) / t, 2)
        lines += [f"Accuracy (epoch 1) for {t} task(s): \t [Class-IL]: 1.0 % \t [Task-IL]: 1.0 %"]
        lines += [f"Accuracy for {t} task(s): \t [Class-IL]: {mean} % \t [Task-IL]: 99.0 %"]
        lines += [f"\tRaw accuracy values: Class-IL {row} | Task-IL {[99.0] * t}"] * raw
        lines += ["", f"Future Accuracy for {t} task(s): \t [Class-IL]: 5.0 % \t [Task-IL]: 5.0 %"]
    return "\n".join(lines) + "\n"


def nsp2(rows: Rows, sizes: Sequence[int], classes=10) -> str:
    """What train_eval.py prints."""
    lines, of = [], len(rows)
    for t, (row, average) in enumerate(zip(shares(rows, sizes), over_images(rows, sizes), strict=True), 1):
        lines += [f"{'#' * 9} Task: [{t}/{of}] {'#' * 9}", f"Current classes ({classes}): [3, 1, 2]"]
        lines += [f"Task [{t}/{of}] Epoch [1/1]:: loss=0.1000, batch_time=1.000, acc_top1=99.00%"]
        for j, value in enumerate(row, 1):
            place = f"Task [{t}/{of}]:: Eval [{j:>{len(str(t))}}/{t}]"
            lines.append(f"{place}: eval_time=1.0s, acc_class_inc={value:>5.2f}%")
        found = f"class_inc_last_acc={average:>5.2f}% | class_inc_last_forg= 1.20%"
        lines += [f":: ** Results of task [{t}]: [ {found} ] **", ":: ** Time so far: 00:01:00 **"]
    return "\n".join(lines) + "\n"


def coda(repeats: Sequence[Rows], sizes: Sequence[int], averages=False) -> str:
    """pt.yaml of several repeats, or global.yaml."""
    tasks = len(sizes)
    exact = [shares(rows, sizes, None) for rows in repeats]
    if averages:
        history = [[sum(found[t]) / (t + 1) for found in exact] for t in range(tasks)]
        mean = [sum(values) / len(values) for values in history]
    else:
        history = [
            [[found[t][j] if j <= t else 0.0 for found in exact] for t in range(tasks)] for j in range(tasks)
        ]
        mean = [[sum(values) / len(values) for values in line] for line in history]
    return yaml.dump({"mean": mean, "history": history}, default_flow_style=False)


def avalanche(rows: Rows, sizes: Sequence[int], whole=True, labels=False) -> str:
    """What TextLogger prints; with `whole` the whole stream is evaluated each time, before training too."""
    lines, tasks = [], len(sizes)
    stream = "from test stream"
    begin, end = "-- >> Start of {} phase << --", "-- >> End of {} phase << --"

    def evaluation(values: Sequence[float], average: float) -> None:
        lines.append(begin.format("eval"))
        for on, value in enumerate(values):
            label = f"Task{on if labels else 0:03d}"
            lines.append(f"-- Starting eval on experience {on} (Task 0) {stream} --")
            lines.append(f"> Eval on experience {on} (Task 0) {stream} ended.")
            lines.append(f"\tLoss_Exp/eval_phase/test_stream/{label}/Exp{on:03d} = 1.2345")
            lines.append(f"\tTop1_Acc_Exp/eval_phase/test_stream/{label}/Exp{on:03d} = {value:.4f}")
        lines.append(end.format("eval"))
        lines.append(f"\tTop1_Acc_Stream/eval_phase/test_stream/Task000 = {average:.4f}")

    if whole:
        evaluation([0.01] * tasks, 0.01)
    for t, row in enumerate(rows):
        lines += [
            begin.format("training"),
            f"-- Starting training on experience {t} (Task 0) from train stream --",
        ]
        evaluation([0.5], 0.5)  # validation
        lines += ["Epoch 0 ended.", "\tTop1_Acc_Epoch/train_phase/train_stream/Task000 = 0.9"]
        lines.append(end.format("training"))
        values = [count / size for count, size in zip(row, sizes, strict=False)]
        future = [0.0] * (tasks - t - 1) if whole else []
        evaluation([*values, *future], sum(row) / sum(sizes[: tasks if whole else t + 1]))
    return "\n".join(lines) + "\n"


def avalanche_csv(rows: Rows, sizes: Sequence[int]) -> str:
    """eval_results.csv, with an evaluation before any training and of experiences to come."""
    lines = ["eval_exp,training_exp,eval_accuracy,eval_loss,forgetting", "0,None,0.0100,2.3,0"]
    for t, row in enumerate(rows):
        for j, size in enumerate(sizes):
            value = row[j] / size if j <= t else 0.0
            lines.append(f"{j},{t},{value:.4f},1.2345,{0 if j >= t else 0.0123}")
    return "\n".join(lines) + "\n"
