"""The README and the pages of the documentation, and the code blocks in them."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
}
COMMAND = re.compile(r"^(?:cl-bench|\S.*/cl-bench) .*$", re.MULTILINE)


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of a page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGES[page], re.DOTALL | re.MULTILINE)


def commands() -> list[tuple[str, str]]:
    """(page, line) of every command of cl-bench that stands in a block of shell lines."""
    return [
        (page, line) for page in PAGES for block in blocks(page, "bash") for line in COMMAND.findall(block)
    ]
