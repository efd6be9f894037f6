"""What is installed: all plugins and the benchmark's files in wheel and sdist, and no other top names."""

import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PLUGINS = sorted(
    path.relative_to(ROOT) for folder in ("methods", "datasets") for path in (ROOT / folder).glob("*.py")
)
DATA = sorted(path.relative_to(ROOT) for path in (ROOT / "datasets" / "glyphs_data").iterdir())
PUBLISHED = sorted(path.relative_to(ROOT) for path in (ROOT / "results" / "published").glob("*.toml"))


def test_the_folders_of_plugins_and_results_are_no_packages():
    assert not [
        name
        for name in ("methods", "datasets", "results", "reports")
        if (ROOT / name / "__init__.py").exists()
    ]


def test_every_folder_of_files_that_the_program_reads_is_packaged_by_name():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    places = {
        settings["package-dir"].get(name, ""): patterns for name, patterns in settings["package-data"].items()
    }
    assert places["results/published"] == ["*.toml"] and places["datasets"] and places["methods"]
    assert set(settings["package-data"]) <= set(settings["packages"])
    assert not [name for name in settings["packages"] if not name.startswith("cl_bench")]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["datasets", "methods"])
def test_a_foreign_package_of_that_name_stays_importable_at_the_repository_root(tmp_path, name):
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("FOREIGN = True", encoding="utf-8")
    plugin = {"datasets": "glyphs", "methods": "vpt_seq"}[name]
    code = (
        f"import sys; sys.path.insert(1, {str(tmp_path)!r}); import {name}; assert {name}.FOREIGN; "
        f"import cl_bench.{name}.{plugin}"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


@pytest.mark.slow
def test_wheel_and_source_distribution_hold_every_plugin_the_glyphs_and_the_published_numbers(tmp_path):
    import shutil

    source = tmp_path / "source"
    shutil.copytree(
        ROOT,
        source,
        ignore=shutil.ignore_patterns(
            ".git", "build", "dist", "*.egg-info", "__pycache__", "reference", ".venv"
        ),
    )
    (source / "results" / "mine" / "runs").mkdir(parents=True)
    (source / "results" / "mine" / "runs" / "record.json").touch()
    subprocess.run(
        [sys.executable, "-m", "build", "--outdir", str(tmp_path / "dist"), str(source)],
        check=True,
        capture_output=True,
    )
    [wheel] = (tmp_path / "dist").glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"cl_bench/{path.as_posix()}" for path in (*PLUGINS, *DATA, *PUBLISHED)} <= names
    assert {name for name in names if "/results/" in name} == {
        f"cl_bench/{path.as_posix()}" for path in PUBLISHED
    }
    assert "cl_bench/report/page.html.j2" in names
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"cl_bench"}
    [sdist] = (tmp_path / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert {path.as_posix() for path in (*PLUGINS, *DATA, *PUBLISHED)} <= held
    assert {name for name in held if name.startswith("results/") and name.endswith(("json", "toml"))} == {
        path.as_posix() for path in PUBLISHED
    }
    found = (
        "from cl_bench.report import published; from pathlib import Path; "
        "print(published.load(published.locate('nsp2', Path('x.toml'))).path)"
    )
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    done = subprocess.run(
        [sys.executable, "-c", found],
        cwd=tmp_path,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert done.stdout.strip() == str(tmp_path / "installed" / "cl_bench" / PUBLISHED[0])
