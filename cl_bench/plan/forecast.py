"""What a plan will do and what it will cost, as lines of text."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cl_bench import environment
from cl_bench.console import duration, short, size
from cl_bench.devices import Place
from cl_bench.plan.cost import Cost, Shapes, costs
from cl_bench.plan.measured import Measured, Speed, kind
from cl_bench.records.first_task_files import is_stored
from cl_bench.records.record import RunRecord
from cl_bench.records.spec import RunSpec
from cl_bench.records.states import STATES, State, of_plan
from cl_bench.records.store import Store
from cl_bench.run.shared_first_task import first_tasks

HEAD = (
    "state", "run id", "method", "benchmark", "seed",
    "forward-eq.", "images", "trained", "kept", "passes", "peak memory", "time",
)  # fmt: skip
FIRST_NUMBER = HEAD.index("forward-eq.")


@dataclass(frozen=True)
class Forecast:
    """What is left of a plan: as lines of text, and as JSON values."""

    lines: list[str]
    values: dict


@dataclass(frozen=True)
class Assumed:
    """What a forecast takes for granted: declared numbers of images, forward-equivalents a second."""

    declared: bool = False
    speed: float | None = None  # where none was measured

    def seconds(self, forwards: int) -> float | None:
        """What so many forward-equivalents take, None where nothing is assumed."""
        return None if self.speed is None else forwards / self.speed


NOTHING = Assumed()


@dataclass(frozen=True)
class Left:
    """What is still to come."""

    forwards: int = 0  # forward-equivalents
    images: int = 0  # image passes while learning

    @classmethod
    def of(cls, cost: Cost, done: int) -> "Left":
        """What remains after so many tasks; of a run that is finished nothing does."""
        return cls(sum(cost.forwards[done:]) + sum(cost.evaluating[done:]), sum(cost.images[done:]))

    def __add__(self, other: "Left") -> "Left":
        return Left(self.forwards + other.forwards, self.images + other.images)

    def __sub__(self, other: "Left") -> "Left":
        return Left(self.forwards - other.forwards, self.images - other.images)


def forecast(
    specs: Sequence[RunSpec],
    store: Store,
    where: Sequence[Place],
    share: bool = True,
    states: dict[str, State] | None = None,
    probe: Callable[[list[RunSpec]], Mapping[str, Speed]] | None = None,
    assumed: Assumed = NOTHING,
) -> Forecast:
    """A row for every run, what is left of it, and the totals.

    A first task that several runs share counts for the first of them. `states` are those of the runs, by run
    id, where they are known already. `probe` gives speeds by `kind` for runs that are not finished, and of
    whose method no run on this machine and network tells the time.
    """
    shapes, known_states = Shapes(assumed.declared), states or of_plan(specs, store)
    known = costs(specs, shapes)
    records = [record for record in store.records() if isinstance(record, RunRecord)]
    devices = where[0].device.split(",")
    machine = environment.machine(devices[0], where[0].threads, environment.compiles(None, devices[0]))
    measured = Measured(records, environment.computer({**machine, "devices": len(devices)}), shapes)
    unfinished = [spec for spec in specs if known_states[spec.run_id()].name != "finished"]
    probed = probe([spec for spec in unfinished if not measured.knows(spec)]) if probe else {}
    measured.add(probed)
    shared = first_tasks(specs, store, machine) if share and len(devices) == 1 else {}
    rows, runs, left, saved, seconds, unknown = [], [], Left(), Left(), 0.0, 0
    seen: set = {key for key in shared.values() if is_stored(store, key)}
    for spec in specs:
        cost, state = known[spec.run_id()], known_states[spec.run_id()]
        rest = Left() if state.name == "unreadable" else Left.of(cost, state.tasks)
        key = shared.get(spec.run_id())
        spared = _spared(cost, key, seen) if key and not state.tasks else Left()
        rest, saved = rest - spared, saved + spared
        takes = measured.seconds(spec, cost, state.tasks, spared.images) if rest.forwards else 0.0
        takes = assumed.seconds(rest.forwards) if takes is None else takes
        left, seconds, unknown = left + rest, seconds + (takes or 0.0), unknown + (takes is None)
        memory = measured.memory_bytes(spec, cost)
        rows.append(_row(spec, state, rest, cost, memory, takes))
        runs.append(_values(spec, state, rest, cost, memory, takes, kind(spec) in probed))
    counts = Counter(state.name for state in known_states.values())
    counted = ", ".join(f"{counts[name]} {name}" for name in STATES if counts[name])
    lines = [*columns([HEAD, *rows]), f"{len(specs)} runs: {counted}"]
    lines.append(f"to do: {short(left.forwards)} forward-equivalents, {short(left.images)} images")
    if saved.forwards:
        share_saved = saved.forwards / (left + saved).forwards
        equivalents = f"{short(saved.forwards)} forward-equivalents"
        lines.append(f"saved by shared first tasks: {equivalents}, {share_saved:.1%}")
    at_a_time = max(1, min(len(where), len(specs)))
    if unknown:
        until = "until one like them has been measured on this machine, or with --probe or --speed"
        lines.append(f"time: unknown for {unknown} runs {until}")
    else:
        lines.append(_time(seconds, at_a_time, len(where), len(probed), assumed))
    if assumed.declared:
        lines.append("by declared numbers of images and without weights: ids are of no run that can be made")
    hours = None if unknown else seconds / 3600
    totals = _totals(left, saved, hours, at_a_time, assumed)
    return Forecast(lines, {"runs": runs, "to_do": totals})


def _totals(left: Left, saved: Left, hours: float | None, at_a_time: int, assumed: Assumed) -> dict:
    """The same as JSON values."""
    return {
        "forward_equivalents": left.forwards,
        "images": left.images,
        "saved": saved.forwards,
        "seconds": None if hours is None else 3600 * hours / at_a_time,
        "device_hours": hours,
        "declared": assumed.declared,
        "assumed_speed": assumed.speed,
    }


def _time(seconds: float, at_a_time: int, places: int, probed: int, assumed: Assumed) -> str:
    """How long everything takes, and what that is known from."""
    steps = f", from a few steps of {probed} of the methods" if probed else ""
    words = f"time: about {duration(seconds / at_a_time)} with {places} runs at a time{steps}"
    if assumed.speed is not None:
        words += f", taking {assumed.speed:,.0f} forward-equivalents a second where none was measured"
    return f"{words}; {seconds / 3600:,.1f} hours of such a place in all"


def _spared(cost: Cost, key, seen: set) -> Left:
    """What a run need not learn of a first task that is stored, or that a run before it will store.

    What this run will store is added to what is `seen`.
    """
    spared = Left(cost.shared_forwards, cost.shared_images) if key in seen else Left()
    seen.add(key)
    statistics = (key, cost.statistics_name)
    if statistics in seen:
        spared += Left(cost.statistics_forwards, cost.statistics_images)
    if cost.statistics_name and cost.statistics_images:
        seen.add(statistics)
    return spared


def _row(
    spec: RunSpec, state: State, rest: Left, cost: Cost, memory: int | None, takes: float | None
) -> tuple[str, ...]:
    """The words under `HEAD`."""
    what = (state.words, spec.run_id(), spec.label, spec.benchmark_key(), spec.seed_name())
    left = (short(rest.forwards), short(rest.images), short(cost.parameters), size(cost.stored_bytes))
    passes = str(cost.prediction_passes)
    return (
        *what,
        *left,
        passes,
        "–" if memory is None else size(memory),
        "–" if takes is None else duration(takes),
    )


def _values(
    spec: RunSpec,
    state: State,
    rest: Left,
    cost: Cost,
    memory: int | None,
    takes: float | None,
    probed: bool,
) -> dict:
    """The same as JSON values."""
    return {
        "state": state.name,
        "reason": state.reason,
        "run_id": spec.run_id(),
        "label": spec.label,
        "benchmark": spec.benchmark_key(),
        "seed": spec.seed_name(),
        "forward_equivalents": rest.forwards,
        "images": rest.images,
        "trained_values": cost.parameters,
        "stored_bytes": cost.stored_bytes,
        "prediction_passes": cost.prediction_passes,
        "peak_memory_bytes": memory,
        "seconds": takes,
        "probed": probed,  # whether the seconds come from a few steps, not from runs
    }


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows with columns of equal width, numbers to the right."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    sides = ["<"] * FIRST_NUMBER + [">"] * (len(widths) - FIRST_NUMBER)
    lines = []
    for row in rows:
        cells = zip(row, sides, widths, strict=True)
        lines.append("  ".join(f"{cell:{side}{width}}" for cell, side, width in cells).rstrip())
    return lines
