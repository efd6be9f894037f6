"""Help that lists options under headings, and what a shell completes."""

from collections.abc import Callable

from typer.core import TyperCommand

# the first heading that names an option has it; what none names stands last
GROUPS = {
    "What to run": (
        "methods", "benchmarks", "dataset", "backbone", "weights", "image_size", "seeds", "plugins",
    ),
    "Protocol": ("splits", "base", "increment", "tasks", "online", "order", "init_seed", "data_seed"),
    "Settings": ("preset", "as_published", "settings", "augmenter", "memory_budget"),
    "Trials and measurements": ("limit", "validation", "losses", "diagnose", "verify", "yes", "dry_run"),
    "How it is carried out": (
        "devices", "device", "jobs", "per_gpu", "gpus_per_run", "threads", "compiled", "share", "retry",
        "time_limit", "scheduler",
    ),
    "Output": ("results", "out", "accuracy", "forgetting", "track", "json", "quiet", "verbose"),
}  # fmt: skip
OTHERS = "Options"


class Grouped(TyperCommand):
    """A command with many options."""

    def format_options(self, ctx, formatter) -> None:
        """The options under their headings, arguments before them."""
        lines: dict[str, list] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                lines.setdefault(_heading(parameter), []).append(record)
        for heading in ("Arguments", *GROUPS, OTHERS):
            if heading in lines:
                with formatter.section(heading):
                    formatter.write_dl(lines[heading])


def _heading(parameter) -> str:
    if parameter.param_type_name == "argument":
        return "Arguments"
    return next((heading for heading, names in GROUPS.items() if parameter.name in names), OTHERS)


def _last_of_list(names: Callable[[], list[str]]) -> Callable[[str], list[str]]:
    """Completes the last word of a list between commas."""

    def complete(incomplete: str) -> list[str]:
        before, comma, word = incomplete.rpartition(",")
        return [before + comma + name for name in names() if name.startswith(word)]

    return complete


def _methods() -> list[str]:
    from cl_bench.plugins import registry
    from cl_bench.plugins.groups import groups

    known = registry.plugins("methods").values()
    return sorted({*groups(), *(name for each in known for name in (each.name, *each.aliases))})


def _datasets() -> list[str]:
    from cl_bench.plugins import registry

    return sorted(registry.plugins("datasets"))


def _trackers() -> list[str]:
    from cl_bench.trackers import named

    return sorted(named.known())


complete_methods, complete_datasets = _last_of_list(_methods), _last_of_list(_datasets)
complete_trackers = _last_of_list(_trackers)
