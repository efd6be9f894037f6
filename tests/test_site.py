"""The documentation builds as a site, and every link and picture on every page of it leads somewhere."""

import re
import shutil
from html import unescape
from pathlib import Path

import pytest
from documents import ROOT

from cl_bench.plugins import registry

pytest.importorskip("mkdocs", reason='needs pip install ".[docs]"')
pytest.importorskip("latex2mathml", reason='needs pip install ".[docs]"')
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder)))
    yield folder
    shutil.rmtree(folder)


def test_every_link_and_picture_on_every_page_is_there(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        if page.name == "404.html":
            continue
        for target in re.findall(r'(?:href|src)="([^"#?]+)[^"]*"', page.read_text(encoding="utf-8")):
            target = unescape(target)
            if "://" in target or target.startswith(("mailto:", "data:")):
                continue
            found = (page.parent / target).resolve()
            assert found.exists() and (found.is_file() or (found / "index.html").exists()), (page, target)


def test_every_method_has_a_page_with_its_settings(site):
    for name in registry.plugins("methods"):
        text = (site / "methods" / name / "index.html").read_text(encoding="utf-8")
        assert "<h2" in text and "Settings on CIFAR-100" in text
        assert r"\[" not in text and r"\(" not in text  # formulas are drawn


def test_every_command_has_its_help(site):
    from typer.main import get_command

    from cl_bench.cli import program

    text = (site / "reference" / "commands" / "index.html").read_text(encoding="utf-8")
    for name, command in get_command(program()).commands.items():
        assert command.hidden or f'id="{name}"' in text


def test_nothing_is_loaded_from_elsewhere(site):
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.findall(r'<(?:script|img|link rel="stylesheet")[^>]+(?:src|href)="https?://', text)
