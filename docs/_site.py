"""What the site has besides the pages of this folder: a page for every method, references, pictures.

A hook of MkDocs, see `mkdocs.yml`: everything is generated from the program and from committed reports.
"""

import html
import re
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation, Section
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
REPORTS, STUDIES = ROOT / "reports", ("reference", "direction")  # those committed
WIDTH = 100  # of help texts
MATH = re.compile(r"\\\((?P<inline>.+?)\\\)|\\\[(?P<shown>.+?)\\\]", re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is generated."""
    pages = {
        "reference/commands.md": _commands(),
        "reference/python.md": _python(),
        "reference/changes.md": _of_root("CHANGELOG.md"),
        "reference/contributing.md": _of_root("CONTRIBUTING.md"),
        **{f"methods/{name}.md": text for name, text in _methods().items()},
    }
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    for picture in sorted(found for study in STUDIES for found in (REPORTS / study).glob("*.png")):
        path = f"report/{picture.relative_to(REPORTS)}"
        files.append(File.generated(config, path, content=picture.read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Pictures of committed reports lie in the site; their pages are named, and methods have pages."""
    markdown = re.sub(r"\]\(\.\./reports/([\w-]+/[\w-]+\.png)\)", r"](report/\1)", markdown)
    markdown = re.sub(r"\[([^\]]+)\]\(\.\./(reports/[\w-]+/[\w.-]+)\)", r"\1 (`\2`)", markdown)
    if page.file.src_uri == "methods.md":
        markdown = re.sub(r"^\| `([\w-]+)` \|", r"| [`\1`](methods/\1.md) |", markdown, flags=re.MULTILINE)
    return markdown


def _of_root(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](../")


def _methods() -> dict[str, str]:
    from cl_bench.plugins import registry

    return {name: _method(plugin) for name, plugin in sorted(registry.plugins("methods").items())}


def _method(plugin) -> str:
    """Algorithm, costs, settings with their sources, what is open, and what the public code does."""
    from cl_bench.cli import listing

    module = plugin.load()
    title, _, text = module.__doc__.strip().partition("\n")
    about = {
        "family": plugin.family,
        "venue": plugin.venue,
        "forward passes of an image at prediction": plugin.passes,
        "keeps of old classes": plugin.keeps,
        "groups": ", ".join(plugin.groups),
    }
    facts = [f"- {name}: {value}" for name, value in about.items() if value not in ("", None)]
    if plugin.reconstruction:
        facts.append("- **a reconstruction from the paper: there is no public code**")
    rows = listing.setting_rows("cifar100/10", plugin.name, None)
    behavior = listing.published_lines("cifar100/10", plugin.name)
    names = ", ".join(f"`{name}`" for name in (plugin.name, *plugin.aliases))
    parts = [
        f"# {module.METHOD.display}",
        f"{names}: {_mathematics(title)}",
        "\n".join(facts),
        f"## Algorithm\n\n{_mathematics(text)}",
        f"## Settings on CIFAR-100, ten tasks\n\n{_table(rows)}",
        f"`cl-bench info BENCHMARK {plugin.name}` prints those of any benchmark.",
        *(["## As published\n\n```text\n" + "\n".join(behavior) + "\n```"] if behavior else []),
    ]
    return "\n\n".join(parts) + "\n"


def _table(rows) -> str:
    """Settings with what they may be, what they mean, where they come from and what is open there."""
    lines = ["| setting | value | may be | meaning | source |", "|:--|:--|:--|:--|:--|"]
    for row in rows:
        source = row.source + (f" (**open**: {row.open})" if row.open else "")
        cells = (f"`{row.name}`", f"`{row.value}`", row.allowed, row.meaning, source)
        lines.append(
            f"| {' | '.join(html.escape(cell, quote=False).replace('|', '&#124;') for cell in cells)} |"
        )
    return "\n".join(lines)


def _mathematics(text: str) -> str:
    """Text with its formulas as MathML, which browsers draw themselves."""

    def drawn(match: re.Match) -> str:
        inline = match["inline"] is not None
        formula = " ".join((match["inline"] or match["shown"]).split())
        made = convert(formula, display="inline" if inline else "block")
        return made if inline else f"\n\n<div>{made}</div>\n\n"

    plain, at = [], 0
    for match in MATH.finditer(text):
        plain += [html.escape(text[at : match.start()], quote=False), drawn(match)]
        at = match.end()
    return "".join([*plain, html.escape(text[at:], quote=False)])


def _commands() -> str:
    """The help of every command."""
    from typer.main import get_command

    from cl_bench.cli import program

    group = get_command(program())
    parts = ["# Command line\n\nGenerated from the program; `-h` behind any command prints the same."]
    for name, command in group.commands.items():
        if not command.hidden:
            context = command.make_context(name, [], resilient_parsing=True, terminal_width=WIDTH)
            context.info_name = f"cl-bench {name}"
            parts.append(f"## {name}\n\n```text\n{command.get_help(context)}\n```")
    return "\n\n".join(parts) + "\n"


def _python() -> str:
    named = ("cl_bench.api.running.run", "cl_bench.api.running.plan", "cl_bench.api.runs.load")
    named += ("cl_bench.api.runs.Runs", "cl_bench.training.method.Method", "cl_bench.data.source.Source")
    return "# Python\n\n" + "\n\n".join(f"::: {name}" for name in named) + "\n"


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """Methods' pages stand below their overview."""
    pages = [file.page for file in files.documentation_pages() if file.src_uri.startswith("methods/")]
    for index, item in enumerate(nav.items):
        if isinstance(item, Page) and item.file.src_uri == "methods.md":
            nav.items[index] = Section("Methods", [item, *sorted(pages, key=lambda page: page.file.src_uri)])
    return nav
