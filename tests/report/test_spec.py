"""Reports from specifications: which runs a cell is made of, what stands beside it, and what is refused."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import recompute
from made import TASKS, has_latex, orders, record, results, triangle

from cl_bench import presets
from cl_bench.config import BackboneSpec, Transform
from cl_bench.errors import InputError
from cl_bench.records import imported
from cl_bench.records.imported import ImportedRecord, ImportedSpec
from cl_bench.records.metrics import Conventions
from cl_bench.report import spec, write
from cl_bench.report.rows import Row

PAPER = Path(__file__).resolve().parents[2] / "reports" / "nsp2-paper.toml"
AUGREG = BackboneSpec(
    name="vit_base_patch16_224.augreg_in21k", image_size=224, mean=(0.5,) * 3, std=(0.5,) * 3
)
CLIP = AUGREG.model_copy(update={"name": "open_clip:ViT-B-16-quickgelu/openai"})
CIFAR = Transform(augment="autoaugment-cifar10")
IMAGENET = Transform(
    augment="autoaugment-imagenet",
    crop_interpolation="bilinear",
    resize="squash-crop",
    interpolation="bilinear",
)
OWN = {"resize": "short-crop", "interpolation": "bicubic"}  # of CLIP
PUBLISHED = f'published = "{PAPER.parent.parent / "results" / "published" / "nsp2.toml"}"\n'


def as_published(method, benchmark, **own):
    """The paper's settings of a method, and its own."""
    found = presets.load("nsp2-paper").settings(method, benchmark)
    return {**{key: setting.value for key, setting in found.items() if key != "backbone"}, **own}


def paper_records(seeds=(2024, 2025, 2026)):
    """A run of every method of the paper's tables on every benchmark, with counts by chance."""
    wanted = spec.read(PAPER)
    for table in wanted.tables:
        for place, row in enumerate(table.rows):
            for column in table.columns if row.select else ():
                name, chosen = spec.selector(row.select)
                dataset, tasks = column.benchmark.split("/")
                for seed in seeds:
                    correct = triangle(int(tasks), seed + 31 * place)
                    joint = name.endswith("joint")
                    label = name + row.select[len(row.select.partition("[")[0]) :]
                    clip, transform = name.startswith("clip"), CIFAR if dataset == "cifar100" else IMAGENET
                    yield record(
                        label, correct[-1:] if joint else correct, seed, joint=joint,
                        options=as_published(name, column.benchmark, **chosen), dataset=dataset,
                        backbone=CLIP if clip else AUGREG, weights_sha256="clip" if clip else "w",
                        transform=transform.model_copy(update=OWN if clip else {}),
                        task_classes=orders(int(tasks), seed),
                    )  # fmt: skip


def shown(path):
    """The cells of a Markdown table's rows and of the published lines below them, without marks."""
    ours, theirs = [], []
    for line in path.read_text(encoding="utf-8").partition("Differences to")[0].splitlines():
        if line.startswith("| ") and "Acc." not in line:
            plain = re.sub(r"<sup>.*?</sup>|</?\w+>|\*\*", "", line)
            cells = [cell.strip() for cell in plain.strip("|").split("|")]
            (theirs if "published" in plain else ours).append(cells)
    return ours, theirs


@pytest.fixture(scope="module")
def paper_report(tmp_path_factory):
    """The paper's tables from made-up runs of everything."""
    root = tmp_path_factory.mktemp("paper")
    unique = {found.spec.run_id(): found for found in paper_records()}
    store = results(root / "results", unique.values())
    return root, write.of_layout(PAPER, store, root / "out", None, None)


def test_every_number_of_every_table_of_the_paper_is_what_its_records_say(paper_report):
    root, _ = paper_report
    expected = recompute.cells(PAPER, root / "results")
    assert set(expected) == {"table1", "table2", "table3", "table4", "table5"}
    for name, lines in expected.items():
        ours, _ = shown(root / "out" / f"{name}.md")
        count = len(lines[0])
        assert [cells[-count:] for cells in ours] == lines
    filled = sum(cell != "–" for lines in expected.values() for line in lines for cell in line)
    assert filled > 200  # most of the 310 numbers of the rows that have a method here


def test_where_a_run_may_be_compared_the_difference_to_the_published_number_stands_beside_it(paper_report):
    root, _ = paper_report
    ours, theirs = shown(root / "out" / "table1.md")
    [own] = [cells for cells in ours if cells[0] == "VPT-NSP²"]
    line = theirs[1]
    assert line[:2] == ["published", f"91.74 ({float(own[1].split()[0]) - 91.74:+.2f})"]
    assert line[2] == f"3.28 ({float(own[2].split()[0]) - 3.28:+.2f})"
    text = (root / "out" / "table2.md").read_text(encoding="utf-8")
    # L2P was published with other weights than these runs', and its 20-split number was made by others
    assert (
        "other checkpoint (vit_base_patch16_224.augreg_in21k, published: vit_base_patch16_224.orig_in21k)"
        in text
        and "run by the authors of LAE" in text
    )
    assert "Visual Prompt Tuning in Null Space for Continual Learning (NeurIPS 2024), Table 2" in text
    assert (
        "| APG | ICCV'23 | – |" in text and ">89.35<" in text
    )  # a method that is not here stays in the table


def test_reports_import_neither_torch_nor_a_method(paper_report):
    root, _ = paper_report
    command = ["report", str(PAPER), "--results", str(root / "results"), "--out", str(root / "again")]
    code = (
        "import sys; from cl_bench.cli import main\n"
        f"try: main({command!r})\n"
        "except SystemExit as end: assert end.code == 0\n"
        "names = ('torch', 'timm', 'torchvision', 'cl_bench.methods')\n"
        "heavy = [name for name in sys.modules if name in names or name.startswith('cl_bench.methods.')]\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert (root / "again" / "report.md").read_bytes() == (root / "out" / "report.md").read_bytes()


def test_the_markdown_renders_as_tables_of_equal_rows_with_emphasis_and_marks(paper_report):
    from markdown_it import MarkdownIt

    root, _ = paper_report
    rendered = (
        MarkdownIt("commonmark", {"html": True})
        .enable("table")
        .render((root / "out" / "report.md").read_text(encoding="utf-8"))
    )
    tables = re.findall(r"<table>(.*?)</table>", rendered, re.DOTALL)
    assert len(tables) == 5 + 4  # four of the five have a baseline, and so a table of differences
    for table in tables:
        assert (
            len({len(re.findall(r"<t[hd]", row)) for row in re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)})
            == 1
        )
        assert "**" not in table
    assert (
        "<strong>" in tables[0]
        and "<u>" in tables[0]
        and "<small>published</small>" in tables[0]
        and "<sup>a</sup>" in "".join(tables)
    )


@pytest.mark.skipif(not has_latex(), reason="no LaTeX with booktabs and adjustbox here")
def test_the_papers_tables_compile_as_they_are_and_nothing_sticks_out(paper_report):
    root, _ = paper_report
    folder = root / "out"
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "report.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]
    assert not re.search(r"Missing character|Overfull", done.stdout)
    text = (folder / "report.tex").read_text(encoding="utf-8")
    assert (
        text.count(r"\begin{tabular}") == 5
        and r"\multicolumn{2}{c}{10S-CIFAR-100}" in text
        and r"$\checkmark$" in text
    )


# --- small reports

SEQ = [[80], [60, 70], [50, 60, 70]]  # accuracy 60
BETTER = [[80], [80, 60], [75, 75, 60]]  # accuracy 70


def small(tmp_path, records, rows='["seq", "nsp2"]', columns='["glyphs/3"]', extra="", head="", **options):
    """The Markdown of a one-table report, and its warnings."""
    records = [
        found.model_copy(update={"spec": found.spec.model_copy(update={"dataset": "glyphs"})})
        for found in records
    ]
    path = tmp_path / "report.toml"
    path.write_text(
        f'title = "T"\n{head}\n[[table]]\nname = "t"\ntitle = "t"\n'
        f"columns = {columns}\nrows = {rows}\n{extra}\n",
        encoding="utf-8",
    )
    report = write.of_layout(
        path,
        results(tmp_path / "results", records),
        tmp_path / "out",
        options.get("accuracy"),
        options.get("forgetting"),
    )
    return report.text, report.warnings


def line_of(text, title):
    [found] = [line for line in text.splitlines() if line.startswith(f"| {title} |")]
    return [cell.strip() for cell in found.strip("|").split("|")][1:]


def test_a_row_is_the_runs_with_exactly_its_options(tmp_path):
    records = [
        record("vpt-nsp2", SEQ),
        record("vpt-nsp2[eta=1.0]", BETTER, options={"eta": 1.0}),
        record("vpt-seq", SEQ),
    ]
    text, warnings = small(tmp_path, records, '["seq", "nsp2", "nsp2[eta=1]", "nsp2[eta=0.5]"]')
    assert (
        line_of(text, "VPT-NSP²")[0] == "<u>60.00</u>"
        and line_of(text, "VPT-NSP² [eta=1.0]")[0] == "**70.00**"
    )
    assert line_of(text, "nsp2[eta=0.5]") == ["–", "–"] and warnings == [
        "t: no run of nsp2[eta=0.5] on glyphs/3; there are nsp2 and nsp2[eta=1.0]"
    ]


THEIRS = ImportedSpec(display="Theirs", benchmark="glyphs/3", seed="1", source="their Table 2")


def test_a_row_that_nothing_answers_to_offers_the_nearest_that_does(tmp_path):
    trial = record("vpt-seq", SEQ, 5, limit=500)
    records = [
        record("vpt-seq[passes=1]", SEQ, options={"passes": 1}),
        record("vpt-pgp", SEQ, precision="bf16", core_version=4),
        trial,
    ]
    rows = (
        '["seq[passes=1]", "seq", { select = "pgp", where = { precision = "fp32" } }, '
        '"nsp2", { imported = "Thiers" }]'
    )
    imported.save(
        ImportedRecord(spec=THEIRS, correct=tuple(map(tuple, SEQ)), test_sizes=(100,) * 3, counted=True),
        tmp_path / "results",
    )
    _, warnings = small(tmp_path, records, rows)
    assert warnings == [
        "t: no run of seq on glyphs/3; there is seq[passes=1]",
        "t: no run of pgp on glyphs/3; there is pgp with precision = bf16",
        "t: no run of nsp2 on glyphs/3",
        "t: no run of Thiers on glyphs/3; there is 'Theirs'",
    ]
    with pytest.raises(
        InputError,
        match=r"is selected by any table of .*: t: no run of seq on glyphs/3; "
        r"there is seq\[passes=1\] \(`cl-bench ls",
    ):
        small(tmp_path, records, '["seq"]')
    with pytest.raises(
        InputError, match="no run of seq on glyphs/3; its runs are of columns with limit = 500"
    ):
        shutil.rmtree(tmp_path / "results")
        small(tmp_path, [trial], '["seq"]')


def test_of_several_values_the_nearest_are_offered_first(tmp_path):
    records = [
        record(f"vpt-nsp2[eta={eta}]", SEQ, options={"eta": eta}) for eta in (1.0, 0.97, 0.7, 0.9, 0.55)
    ]
    _, warnings = small(tmp_path, [record("vpt-seq", SEQ), *records], '["seq", "nsp2[eta=0.5]"]')
    assert warnings == [
        "t: no run of nsp2[eta=0.5] on glyphs/3; there are nsp2[eta=0.55], nsp2[eta=0.7] and nsp2[eta=0.9]"
    ]


def test_missing_partial_and_unfinished_cells_are_shown_as_such(tmp_path):
    records = [record("vpt-seq", SEQ, seed) for seed in (1, 2, 3)]
    records += [
        record("vpt-nsp2", BETTER, 1),
        record("vpt-nsp2", BETTER, 2),
        record("vpt-nsp2", BETTER[:1], 3, "running"),
    ]
    records += [record("vpt-pgp", SEQ[:2], 1, "failed")]
    text, warnings = small(tmp_path, records, '["seq", "nsp2", "pgp", "joint"]')
    assert (
        line_of(text, "VPT-NSP²")[0] == "**70.00 ± 0.00 (2 of 3 seeds)**"
        and line_of(text, "vpt-pgp") == ["unfinished"] * 2
    )
    assert line_of(text, "joint") == ["–", "–"] and "t: no run of joint on glyphs/3" in warnings
    assert "VPT-NSP², seed 3: not finished (1 tasks done)" in text and "vpt-pgp, seed 1: failed" in text


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"manifest_digest": "m2"}, r"2 data manifests \(digest\) \(m, m2\): they are not the same images"),
        ({"weights_sha256": "w2"}, r"2 weights of one name"),
        ({"backbone": AUGREG}, r"2 backbones .*name one with backbone = "),
        ({"task_classes": ((0, 1, 2), (3,), (4, 5))}, r"2 task sizes"),
    ],
)
def test_runs_that_may_not_share_a_column_are_refused_with_what_they_differ_in(tmp_path, other, said):
    with pytest.raises(
        InputError, match=f"table 't', column 1: glyphs/3 stands for runs that may not share a column: {said}"
    ):
        small(tmp_path, [record("vpt-seq", SEQ), record("vpt-nsp2", SEQ, **other)])


def test_a_sweep_over_an_option_that_no_row_has_offers_the_nearest(tmp_path):
    figure = (
        "[[figure]]\nname = 'f'\nkind = 'tradeoff'\nsweep = 'etaa'\n"
        "columns = ['glyphs/3']\nrows = ['nsp2[eta=0.9]']"
    )
    with pytest.raises(InputError, match="figure 'f', sweep: unknown option 'etaa'; did you mean 'eta'?"):
        small(tmp_path, [record("vpt-nsp2", SEQ, options={"eta": 0.9})], '["nsp2[eta=0.9]"]', extra=figure)


def test_a_column_can_name_the_backbone_it_means(tmp_path):
    records = [record("vpt-seq", SEQ), record("vpt-seq", BETTER, backbone=AUGREG)]
    text, _ = small(
        tmp_path,
        records,
        '["seq"]',
        f'[{{ benchmark = "glyphs/3", backbone = "{AUGREG.name}" }}, '
        '{ benchmark = "glyphs/3", backbone = "toy_vit" }]',
    )
    assert line_of(text, "vpt-seq") == ["70.00", "-5.00", "60.00", "20.00"]


def test_two_configurations_of_one_name_are_never_averaged(tmp_path):
    records = [record("vpt-seq", SEQ), record("vpt-seq", BETTER, 2025, precision="bf16")]
    with pytest.raises(
        InputError,
        match=r"row 1: seq has 2 configurations on glyphs/3 \(precision: bf16, fp32\); choose with where",
    ):
        small(tmp_path, records, '["seq"]')
    text, _ = small(tmp_path, records, '[{ select = "seq", where = { precision = "bf16" } }]')
    assert line_of(text, "vpt-seq [precision=bf16]")[0] == "70.00"


def test_a_selector_names_values_whether_or_not_they_are_the_presets(tmp_path):
    records = [
        record("vpt-seq", SEQ),
        record("vpt-nsp2", BETTER),
        record("vpt-nsp2[eta=0.5]", SEQ, options={"eta": 0.5}),
    ]
    for select, accuracy in (
        ("nsp2", "70.00"),
        ("nsp2[eta=0.97]", "70.00"),
        ("nsp2[eta=0.97,batch=8]", "70.00"),
        ("nsp2[eta=0.5]", "60.00"),
    ):
        text, warnings = small(tmp_path, records, f'["{select}"]')
        assert f"| {accuracy} |" in text and not warnings, select
    text, warnings = small(tmp_path, records, '["seq", "nsp2[batch=9]"]')
    assert warnings == ["t: no run of nsp2[batch=9] on glyphs/3; there are nsp2 and nsp2[eta=0.5]"]
    other = record("vpt-seq[normalisation=unit01]", BETTER, transform=Transform(normalisation="unit01"))
    text, warnings = small(
        tmp_path, [records[0], other], '["seq[input_norm=unit01]"]'
    )  # its name on the command line
    assert "| 70.00 |" in text and not warnings


def test_rows_that_differ_in_transforms_or_kind_of_class_order_are_noted(tmp_path):
    others = [
        ({"transform": CIFAR.model_copy(update={"crop_scale": 0.9})}, "random crops"),
        ({"transform": CIFAR.model_copy(update={"augmenter": "torchvision"})}, "augmenting code"),
        ({"transform": CIFAR.model_copy(update={"resize": "short-crop"})}, "evaluation resize"),
        ({"order": "natural", "transform": CIFAR}, "class order"),
    ]
    for number, (changes, said) in enumerate(others):
        (tmp_path / str(number)).mkdir()
        text, _ = small(
            tmp_path / str(number),
            [record("vpt-seq", SEQ, transform=CIFAR), record("vpt-nsp2", BETTER, **changes)],
        )
        assert f"- Rows differ in {said}: vpt-seq: " in text


def test_trials_stand_only_where_their_limit_is_named_and_say_it(tmp_path):
    records = [record("vpt-seq", SEQ), record("vpt-seq", BETTER, limit=50)]
    text, _ = small(tmp_path, records, '["seq"]')
    assert line_of(text, "vpt-seq")[0] == "60.00" and "trial" not in text
    text, _ = small(tmp_path, records, '["seq"]', '[{ benchmark = "glyphs/3", limit = 50 }]')
    assert line_of(text, "vpt-seq")[0] == "70.00" and "trial: at most 50 training images" in text


def test_seeds_of_one_name_with_different_class_orders_are_named_and_not_paired(tmp_path):
    records = [record("vpt-seq", SEQ), record("vpt-nsp2", BETTER, task_classes=TASKS[::-1])]
    text, warnings = small(tmp_path, records, extra='baseline = "seq"')
    assert (
        warnings
        == [
            "t: seeds 2024 of VPT-NSP² and vpt-seq have different class orders and are not paired",
            "t: no two runs of VPT-NSP² and vpt-seq on glyphs/3 share order and seeds",
        ]
        and "Differences" not in text
    )


@pytest.mark.parametrize(
    ("changes", "benchmark", "options", "reason"),
    [
        ({"smoke": True}, "cifar100/10", {}, r"smoke benchmark\."),
        ({}, "imagenet-r/10", {}, "published for imagenet-r/10"),
        ({"limit": 500}, "cifar100/10", {}, "a trial with at most 500 training images"),
        ({"validation": 0.25}, "cifar100/10", {}, "evaluated on held-out training images"),
        (
            {"options": as_published("vpt-nsp2", "cifar100/10", passes=5)},
            "cifar100/10",
            {},
            r"other number of passes \(5, published: 100\)",
        ),
        ({"order": "natural"}, "cifar100/10", {}, r"other class order \(natural, published: nsp2\)"),
        ({}, "cifar100/10", {"accuracy": "sample"}, r"accuracy as sample \(published: task_mean\)"),
        (
            {"backbone": AUGREG.model_copy(update={"name": "vit_base_patch16_224.dino"})},
            "cifar100/10",
            {},
            "other checkpoint",
        ),
        (
            {"backbone": AUGREG.model_copy(update={"image_size": 112})},
            "cifar100/10",
            {},
            r"other image size \(112, published: 224\)",
        ),
        (
            {"transform": Transform()},
            "cifar100/10",
            {},
            r"other augmentation \(none, published: autoaugment-cifar10\)",
        ),
        (
            {"transform": CIFAR.model_copy(update={"normalisation": "unit01"})},
            "cifar100/10",
            {},
            "inputs normalized as unit01",
        ),
        (
            {"options": as_published("vpt-nsp2", "cifar100/10", temperature=1.0)},
            "cifar100/10",
            {},
            r"other temperature \(1, published: 28\)",
        ),
        (
            {"transform": CIFAR.model_copy(update={"crop_scale": 0.9})},
            "cifar100/10",
            {},
            r"other crop_scale \(0.9, published: 0.08\)",
        ),
        (
            {"label": "vpt-nsp2[layers=3]"},
            "cifar100/10",
            {"select": "nsp2[layers=3]"},
            "layers = 3, where the published row says nothing",
        ),
        (
            {"label": "vpt-nsp2[ln=off]", "options": as_published("vpt-nsp2", "cifar100/10", ln=False)},
            "cifar100/10",
            {"select": "nsp2[ln=off]"},
            "other ln",
        ),
        ({}, "cifar100/10", {}, None),
        ({"precision": "bf16"}, "cifar100/10", {}, None),  # the published code's own is fp16
        ({"dataset_argument": "/data/cifar"}, "cifar100/10", {}, None),  # the same archive elsewhere
    ],
)
def test_a_published_number_that_may_not_be_compared_says_why(tmp_path, changes, benchmark, options, reason):
    settings = {
        "options": as_published("vpt-nsp2", "cifar100/10"),
        "transform": CIFAR,
        "backbone": AUGREG,
        "task_classes": orders(10, 1),
    }
    settings |= {"dataset": "cifar100", **changes}
    found = record(settings.pop("label", "vpt-nsp2"), triangle(10, 5), **settings)
    path, row = (
        tmp_path / "r.toml",
        f'{{ select = "{options.get("select", "nsp2")}", published = "VPT-NSP²" }}',
    )
    limits = "".join(f", {key} = {settings[key]}" for key in ("limit", "validation") if key in settings)
    path.write_text(
        f'title = "T"\n{PUBLISHED}[[table]]\nname = "t"\ntitle = "t"\npublished = "tab:bsl"\n'
        'metrics = ["accuracy"]\n'
        f'columns = [{{ benchmark = "cifar100/10", published = "{benchmark}"{limits} }}]\nrows = [{row}]\n',
        encoding="utf-8",
    )
    text = write.of_layout(
        path, results(tmp_path / "results", [found]), tmp_path / "out", options.get("accuracy"), None
    ).text
    [line] = [line for line in text.splitlines() if "<small>published" in line]
    if reason is None:
        assert re.search(r"91\.74 ± |91\.74 \([-+]\d+\.\d\d\)", line) and "not comparable" not in text
    else:
        assert (
            line.endswith("<sup>a</sup> |")
            and "(" not in line
            and re.search(f"a: not comparable: {reason}", text)
        )


TABLE = "title = 'x'\n[[table]]\nname = 't'\ntitle = 't'\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("titel = 'x'\n", "unknown key 'titel'; did you mean 'title'"),
        (TABLE + "columns = ['glyphs/3']\nrows = ['nsp3']\n", "unknown method 'nsp3'; did you mean 'nsp2'"),
        (
            TABLE + "columns = ['glyhps/3']\nrows = ['seq']\n",
            "unknown data set 'glyhps'; did you mean 'glyphs'",
        ),
        (TABLE + "columns = ['glyphs']\nrows = ['seq']\n", "'glyphs' is not a benchmark"),
        (
            TABLE + "columns = ['glyphs/3']\nrows = [{ selekt = 'seq' }]\n",
            "row 1, selekt: unknown key 'selekt'; did you mean 'select'",
        ),
        (TABLE + "columns = ['glyphs/3']\nrows = ['nsp2[eta=1|2]']\n", "names 2 configurations"),
        (TABLE + "columns = ['glyphs/3']\nrows = []\n", "rows: expected a list with something in it"),
        (TABLE + "columns = ['glyphs/3']\nrows = ['seq']\nbaseline = 'pgp'\n", "unknown baseline 'pgp'"),
        (
            TABLE + "columns = ['glyphs/3']\nrows = [{ select = 'seq', published = 'VPT-Seq' }]\n",
            "row 1, published: needs the label",
        ),
        (
            "title = 'x'\n[[figure]]\nname = 't'\nkind = 'pie'\ncolumns = ['glyphs/3']\nrows = ['seq']\n",
            "kind: 'pie' is not usable",
        ),
        ("title = 'x'\nbroken\n", "r.toml, line 2: the report specification is not TOML"),
    ],
)
def test_a_specification_that_cannot_be_used_is_one_line_that_says_where(tmp_path, text, said):
    (tmp_path / "r.toml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=said) as caught:
        spec.read(tmp_path / "r.toml")
    assert "\n" not in str(caught.value)


FULL = "columns = ['glyphs/3']\nrows = ['seq']\n"


@pytest.mark.parametrize(
    ("text", "line", "field"),
    [
        ("[[table]]\nname = 't'\ntitle = 't'\n" + FULL, 1, "title"),
        ("title = 'x'\ntitel = 'y'\n", 2, "titel"),
        ("title = 'x'\n[table]\n", 2, "table"),
        ("title = 'x'\naccuracy = 'mean'\n", 2, "accuracy"),
        ("title = 'x'\n\n[[table]]\nname = 't'\n" + FULL, 3, "table 't', title"),
        ("title = 'x'\n[[table]]\nname = 't'\ntitle = 't'\nrows = ['seq']\n", 2, "table 't', columns"),
        ("title = 'x'\n[[table]]\ntitle = 't'\n" + FULL, 2, "table 1, name"),
        ("title = 'x'\n[[table]]\nname = 'a/b'\ntitle = 't'\n" + FULL, 3, "table 'a/b', name"),
        (TABLE + FULL + "rank = 'best'\n", 7, "table 't', rank"),
        (TABLE + FULL + "metrics = ['accuracy', 'speed']\n", 7, "table 't', metrics"),
        (TABLE + FULL + "method_column = false\n", 7, "table 't', method_column"),
        (TABLE + FULL + "published = 'tab:x'\n", 7, "table 't', published"),
        (TABLE + FULL + TABLE.partition("\n")[2] + FULL, 8, "table 't', name"),
        (
            TABLE + "columns = [\n'glyphs/3',\n{ benchmark = 'glyphs/4', limit = '3' }]\nrows = ['seq']\n",
            7,
            "table 't', column 2, limit",
        ),
        (
            TABLE + "columns = ['glyphs/3']\nrows = [\n'seq',\n{ select = 'seq', rule = 1 },\n]\n",
            8,
            "table 't', row 2, rule",
        ),
        (TABLE + "columns = ['glyphs/3']\nrows = [\n'seq', 3]\n", 7, "table 't', row 2, select"),
        (TABLE + "columns = ['glyphs/3']\nrows = [{ title = 'x' }]\n", 6, "table 't', row 1"),
        (
            TABLE + "columns = ['glyphs/3']\nrows = [{ select = 'seq', imported = 'x' }]\n",
            6,
            "table 't', row 1, imported",
        ),
        (TABLE + "columns = ['glyphs/x']\nrows = ['seq']\n", 5, "table 't', column 1, benchmark"),
        (TABLE + "columns = ['glyphs/3']\nrows = ['seq[eta']\n", 6, "table 't', row 1, select"),
        (
            TABLE + "columns = ['glyphs/3']\nrows = [{ select = 'seq', at = 'x' }]\n",
            6,
            "table 't', row 1, at",
        ),
    ],
)
def test_every_mistake_is_told_with_file_line_and_field(tmp_path, text, line, field):
    (tmp_path / "r.toml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        spec.read(tmp_path / "r.toml")
    assert str(caught.value).startswith(f"{tmp_path / 'r.toml'}, line {line}, {field}: ") and "\n" not in str(
        caught.value
    )


def test_published_numbers_that_come_with_the_program_are_found_by_name_from_anywhere(tmp_path):
    rows, extra = '[{ select = "seq", published = "VPT-Seq" }]', 'published = "tab:bsl"'
    small(tmp_path, [record("vpt-seq", SEQ)], rows, extra=extra, head='published = "nsp2"')
    wrong = {
        "nsp": "line 2, published: unknown published numbers 'nsp'; did you mean 'nsp2'",
        "results/published/nsp2.toml": "line 2, published: there is no file .*; "
        "those that come with the program are named by published = 'nsp2'",
        "mine.toml": "cannot read the published numbers .*mine.toml: No such file",
    }
    for name, said in wrong.items():
        with pytest.raises(InputError, match=said):
            small(tmp_path, [record("vpt-seq", SEQ)], rows, extra=extra, head=f'published = "{name}"')


def test_six_seeds_that_agree_are_a_star_with_its_meaning_below(tmp_path):
    records = [
        record(name, correct, seed)
        for seed in range(6)
        for name, correct in (("vpt-seq", SEQ), ("vpt-nsp2", BETTER))
    ]
    text, _ = small(tmp_path, records, extra='baseline = "seq"\nmetrics = ["accuracy"]')
    assert (
        line_of(text.partition("Differences")[0], "VPT-NSP²") == ["**70.00 ± 0.00**<sup>*</sup>"]
        and "*: differs from vpt-seq, p below 0.05" in text
    )
    assert "| VPT-NSP² | glyphs/3 | Acc. ↑ | +10.00 (n = 6) | – | 0.031 |" in text


def test_published_rows_and_tables_that_the_paper_does_not_have_are_named(tmp_path):
    for row, table, said in (
        ("VPT-Sec", "tab:bsl", "did you mean 'VPT-Seq'"),
        ("VPT-Seq", "tab:bls", "did you mean 'tab:bsl'"),
    ):
        with pytest.raises(InputError, match=said):
            small(
                tmp_path,
                [record("vpt-seq", SEQ)],
                f'[{{ select = "seq", published = "{row}" }}]',
                extra=f'published = "{table}"',
                head=PUBLISHED,
            )
    text, _ = small(
        tmp_path,
        [record("vpt-seq", SEQ)],
        '[{ select = "seq", published = "VPT-Seq" }]',
        extra='published = "tab:bsl"',
        head=PUBLISHED,
    )
    assert line_of(text, "vpt-seq")[0] == "60.00" and "<small>published" not in text  # a column of one's own


def test_a_report_that_selects_nothing_is_an_error(tmp_path):
    with pytest.raises(InputError, match="no run in .* is selected by any table"):
        small(tmp_path, [record("vpt-pgp", SEQ)])
    with pytest.raises(InputError, match="there is no results folder"):
        write.of_layout(PAPER, results(tmp_path / "x", []).__class__(tmp_path / "none"), tmp_path, None, None)


def test_rows_may_name_another_backbone_than_their_column_and_the_note_says_whose_it_is(tmp_path):
    records = [record("vpt-seq", SEQ), record("vpt-nsp2", BETTER, backbone=AUGREG, weights_sha256="w2")]
    with pytest.raises(InputError, match="2 backbones"):
        small(tmp_path, records)
    rows = f'["seq", {{ select = "nsp2", backbone = "{AUGREG.name}" }}]'
    text, _ = small(tmp_path, records, rows, '[{ benchmark = "glyphs/3", backbone = "toy_vit" }]')
    assert line_of(text, "VPT-NSP²")[0] == "**70.00**"
    assert f"backbone toy_vit, 16 px (vpt-seq); glyphs/3: backbone {AUGREG.name}, 224 px (VPT-NSP²)." in text


def test_a_number_says_its_n_where_not_all_have_the_same(tmp_path):
    ten = {"task_classes": orders(10, 1)}
    records = [record("vpt-seq", SEQ, seed) for seed in (1, 2)] + [
        record("vpt-seq", triangle(10, 3), 1, **ten)
    ]
    text, _ = small(tmp_path, records, '["seq"]', '["glyphs/3", "glyphs/10"]')
    assert [cell.partition("(")[2] for cell in line_of(text, "vpt-seq")] == [
        "n = 2)",
        "n = 2)",
        "n = 1)",
        "n = 1)",
    ]
    text, _ = small(tmp_path, records[:2], '["seq"]')
    assert "over n = 2 seeds (1, 2)" in text and line_of(text, "vpt-seq")[0] == "60.00 ± 0.00"


def test_settings_that_all_rows_share_stay_in_their_names(tmp_path):
    text, _ = small(
        tmp_path,
        [record("vpt-seq[batch=4]", SEQ), record("vpt-nsp2[batch=4]", SEQ)],
        '["seq[batch=4]", "nsp2[batch=4]"]',
    )
    assert line_of(text, "vpt-seq [batch=4]") and line_of(text, "VPT-NSP² [batch=4]")


def test_rows_of_one_column_with_other_precision_transform_or_class_orders_are_named_below(tmp_path):
    records = [
        record("vpt-seq", SEQ, precision="bf16", core_version=4),
        record("vpt-nsp2", BETTER, transform=CIFAR),
        record("vpt-pgp", SEQ, task_classes=TASKS[::-1]),
    ]
    text, _ = small(tmp_path, records, '["seq", "nsp2", "pgp"]')
    assert "Rows differ in precision: vpt-seq: bf16; VPT-NSP², vpt-pgp: fp32." in text
    assert "Rows differ in augmentation: vpt-seq, vpt-pgp: none; VPT-NSP²: autoaugment-cifar10." in text
    assert "Class orders differ between rows for seed 2024." in text
    assert "core version" not in text and "Frozen network in bf16" not in text  # each precision has its own


def test_library_versions_that_differ_within_a_number_are_named_below(tmp_path):
    def made_with(seed, *environments):
        return record("vpt-seq", SEQ, seed).model_copy(update={"environments": environments})

    old, new = {"torch": "2.4.1", "timm": "1.0.20"}, {"torch": "2.5.0", "timm": "1.0.20"}
    others = [
        record("vpt-nsp2", BETTER, seed).model_copy(update={"environments": (new,)}) for seed in (1, 2, 3)
    ]
    text, _ = small(tmp_path, [made_with(1, old), made_with(2, old, new), made_with(3, new), *others])
    versions = "torch 2.4.1 (seeds 1, 2), torch 2.5.0 (seeds 2, 3)"
    assert f"- vpt-seq: made with different versions of libraries: {versions}." in text
    assert text.count("different versions of libraries") == 1


def test_core_versions_of_one_precision_are_named_below(tmp_path):
    records = [
        record("vpt-seq", SEQ, precision="bf16", core_version=4),
        record("vpt-nsp2", BETTER, precision="bf16", core_version=3),
    ]
    text, _ = small(tmp_path, records, '["seq", "nsp2"]')
    assert (
        "Rows differ in core version: vpt-seq: 4; VPT-NSP²: 3." in text and "Frozen network in bf16." in text
    )


def test_a_copied_run_folder_is_no_second_seed(tmp_path):
    found = record("vpt-seq", SEQ, dataset="glyphs")
    store = results(tmp_path / "results", [found])
    folder = store.folder(found.spec)
    shutil.copytree(folder, folder.with_name(f"{folder.name} (copy)"))
    text, warnings = small(tmp_path, [found], '["seq"]')
    assert line_of(text, "vpt-seq")[0] == "60.00" and "is a copy of the run" in warnings[0]


def test_a_setting_that_does_not_exist_is_named_and_one_that_does_decides(tmp_path):
    with pytest.raises(
        InputError, match="row 1, where: unknown setting 'precison'; did you mean 'precision'"
    ):
        small(tmp_path, [record("vpt-seq", SEQ)], '[{ select = "seq", where = { precison = "fp32" } }]')
    text, _ = small(
        tmp_path, [record("vpt-seq", SEQ)], '[{ select = "seq", where = { mean = [0, 0, 0], eta = 0.97 } }]'
    )
    assert line_of(text, "vpt-seq")[0] == "60.00"


def test_labels_need_headings_and_tables_metrics(tmp_path):
    with pytest.raises(
        InputError, match="row 1, labels: 1 labels, but the table's labels give 0 columns a heading"
    ):
        small(tmp_path, [record("vpt-seq", SEQ)], '[{ select = "seq", labels = ["x"] }]')
    with pytest.raises(InputError, match="line 8, table 't', metrics: expected at least one"):
        small(tmp_path, [record("vpt-seq", SEQ)], '["seq"]', extra="metrics = []")


def test_a_doubt_about_a_published_number_stands_with_the_difference(tmp_path):
    found = record(
        "vpt-nsp2", triangle(10, 5), options=as_published("vpt-nsp2", "imagenet-r/10"), transform=IMAGENET,
        backbone=AUGREG, dataset="imagenet-r", task_classes=orders(10, 1),
    )  # fmt: skip
    (tmp_path / "r.toml").write_text(
        f'title = "T"\n{PUBLISHED}[[table]]\nname = "t"\ntitle = "t"\npublished = "tab:bsl"\n'
        'columns = ["imagenet-r/10"]\nrows = [{ select = "nsp2", published = "VPT-NSP²" }]\n',
        encoding="utf-8",
    )
    text = write.of_layout(
        tmp_path / "r.toml", results(tmp_path / "results", [found]), tmp_path / "out", None, None
    ).text
    [line] = [line for line in text.splitlines() if "<small>published" in line]
    assert (
        re.search(r"78\.88 \([-+]\d+\.\d\d\)</small><sup>a</sup>", line)
        and "a: the paper's formula is the mean over tasks, its code" in text
    )
    own = found.model_copy(
        update={
            "spec": found.spec.model_copy(
                update={"backbone": AUGREG.model_copy(update={"weights": "/w.safetensors"})}
            )
        }
    )
    text = write.of_layout(
        tmp_path / "r.toml", results(tmp_path / "results", [own]), tmp_path / "out", None, None
    ).text
    assert f"b: weights read from a file, which nobody compared with those called {AUGREG.name}" in text


def test_best_and_second_can_be_ranked_between_lines_and_upper_bounds_never_are(tmp_path):
    records = [
        record("vpt-seq", SEQ),
        record("vpt-nsp2", BETTER),
        record("vpt-pgp", SEQ),
        record("vpt-joint", [[99, 99, 99]], joint=True),
    ]
    rows = '["seq", "nsp2", { select = "pgp", rule = true }, { select = "joint", bound = true }]'
    text, _ = small(tmp_path, records, rows, extra='rank = "groups"')
    assert line_of(text, "VPT-NSP²")[0] == "**70.00**" and line_of(text, "vpt-seq")[0] == "<u>60.00</u>"
    assert line_of(text, "vpt-pgp")[0] == "60.00" and line_of(text, "vpt-joint")[0] == "99.00"


def test_two_matrices_imported_as_one_seed_keep_their_own_numbers():
    low, high = (
        ImportedRecord(spec=THEIRS, correct=((count,), (count, count)), test_sizes=(100,) * 2, counted=True)
        for count in (50, 70)
    )
    row = Row("theirs", "theirs", False, [low, high])
    assert row.values("accuracy", Conventions()) == [0.5, 0.7]
