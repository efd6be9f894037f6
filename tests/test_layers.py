"""Who may import whom: a package names those below it, and nothing else of ours."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BELOW = {  # "" are the modules directly in cl_bench/, which every package may import
    "nn": "", "records": "", "data": "nn", "training": "nn data", "report": "records",
    "trackers": "records", "diagnosis": "nn data records training",
    "run": "nn data records training trackers diagnosis", "launch": "records run",
    "plan": "nn data records training run trackers", "profiling": "nn data records training run plan",
    "cli": "data records run launch plan profiling report trackers",
    "api": "records launch plan report trackers", "methods": "nn data training methods",
    "datasets": "data datasets",
}  # fmt: skip
FILES = [
    path for folder in ("cl_bench", "methods", "datasets") for path in sorted((ROOT / folder).rglob("*.py"))
]


def package(parts) -> str:
    return parts[1] if len(parts) > 1 and parts[1] in BELOW else ""


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_imports_only_packages_below_its_own(path):
    place = path.relative_to(ROOT).parts
    own = package(place if place[0] == "cl_bench" else ("cl_bench", *place))
    allowed = {"", own, *BELOW.get(own, "").split()} if path.name != "__main__.py" else {"", "cli"}
    # no data sets, but the scripts that make a network and the words beside it
    allowed |= {"nn"} if path.name in ("_glyphs_pretrain.py", "_glyphs_words.py") else set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cl_bench"):
            names = (
                [f"{node.module}.{alias.name}" for alias in node.names]
                if node.module == "cl_bench"
                else [node.module]
            )
            assert {package(name.split(".")) for name in names} <= allowed, f"line {node.lineno}"
