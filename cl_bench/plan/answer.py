"""What planning answers: it imports no torch, so that a process without torch can be told."""

from dataclasses import dataclass, field

from cl_bench.records.spec import Precision, RunSpec, Size


@dataclass(frozen=True)
class Plan:
    """The runs, in the order asked for, and what deserves a look before they start."""

    specs: list[RunSpec]
    warnings: list[str]
    remarks: list[str] = field(default_factory=list)  # what the data is, and the sentences made of it
    precision: Precision = "fp32"  # of runs that name none
    hints: list[str] = field(default_factory=list)  # which of the runs are there in another version
    sizes: dict[str, Size] = field(default_factory=dict)  # by run id
    left_out: list[str] = field(default_factory=list)  # methods of groups that do not fit, and why
