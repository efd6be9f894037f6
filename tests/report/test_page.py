"""The HTML page: one file that needs nothing else, sortable, with the runs behind every number."""

import html.parser
import re
import shutil
import subprocess

import pytest
from made import BETTER, SEQ, record, results

from cl_bench.records.metrics import Conventions
from cl_bench.report import write

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    root = tmp_path_factory.mktemp("page")
    records = [
        record("vpt-seq", SEQ, seed, command=f"cl-bench run --methods vpt-seq --seeds {seed},")
        for seed in (1, 2)
    ]
    records += [
        record("vpt-nsp2", BETTER, 1, command="cl-bench run --methods 'vpt-nsp2[eta=<1>]'"),
        record("vpt-pgp", SEQ[:1], 1, "failed"),
    ]
    records += [record("vpt-joint", [[90, 90, 93]], 1, joint=True)]
    write.of_records(records, results(root / "results", records), root / "out", Conventions())
    return records, root / "out" / "report.html"


class Links(html.parser.HTMLParser):
    """The names of all elements and the targets of all links."""

    def __init__(self, text):
        super().__init__()
        self.names, self.targets, self.loaded = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.names += [values["id"]] if "id" in values else []
        self.targets += [values["href"]] if tag == "a" else []
        self.loaded += [values[key] for key in ("src", "href") if key in values and tag != "a"]


def test_the_page_loads_nothing_and_every_link_leads_somewhere_in_it(page):
    links = Links(page[1].read_text(encoding="utf-8"))
    assert links.loaded and all(target.startswith("data:") for target in links.loaded)
    inside = [target[1:] for target in links.targets if target.startswith("#")]
    assert len(inside) >= 8 and set(inside) <= set(links.names) and len(set(links.names)) == len(links.names)
    assert not re.search(r"https?://|@import|url\(", page[1].read_text(encoding="utf-8"))


def test_behind_every_number_stand_run_ids_commands_settings_and_environment(page):
    records, path = page
    text = path.read_text(encoding="utf-8")
    for found in records:
        assert found.spec.run_id() in text
    assert (
        "cl-bench run --methods vpt-seq --seeds 2, --set precision=fp32" in text
        and "&#34;processor&#34;: &#34;P&#34;" in text
        and "&#34;eta&#34;: 0.97" in text
    )
    assert "eta=&lt;1&gt;" in text and "eta=<1>" not in text  # what users name is text, never markup


def test_what_stands_behind_a_number_is_in_the_convention_of_the_table(tmp_path):
    found = record("vpt-seq", [[80], [60, 70], [50, 60, 70]]).model_copy(
        update={"test_sizes": (100, 1000, 100)}
    )
    write.of_records(
        [found], results(tmp_path / "results", [found]), tmp_path / "out", Conventions("sample", "diagonal")
    )
    text = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert text.count("15.00") == 2 and "accuracy 15.00" in text  # 180 of 1200 images


def chromium(path, *options):
    profile = path.parent / "profile"
    return subprocess.run(
        [BROWSER, *QUIET.split(), f"--user-data-dir={profile}", *options, path.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
def test_the_page_is_drawn_by_a_browser_and_its_tables_sort(page, tmp_path):
    from PIL import Image

    path = page[1]
    chromium(path, "--window-size=1200,1600", f"--screenshot={tmp_path / 'page.png'}")
    with Image.open(tmp_path / "page.png") as picture:
        colours = picture.convert("RGB").getcolors(maxcolors=1 << 24)
        assert (
            picture.size == (1200, 1600) and len(colours) > 100
        )  # text, lines and figures, not a blank page
    sorted_page = path.with_name("sorted.html")
    click = "document.querySelectorAll('table.sortable th button')[1].click();"
    sorted_page.write_text(
        path.read_text(encoding="utf-8").replace("</body>", f"<script>{click}</script></body>"),
        encoding="utf-8",
    )
    rows = re.findall(
        r'<tr class="[^"]*">\s*<td class="word">([^<]*)</td>', chromium(sorted_page, "--dump-dom").stdout
    )
    assert rows == ["vpt-seq", "VPT-NSP²", "vpt-joint", "vpt-pgp"]  # 60, 70, 91, and what is missing last
