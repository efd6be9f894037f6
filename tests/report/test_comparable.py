"""Which published numbers stand beside ours with a difference, and why others do not."""

import re

import pytest
from made import SEQ, orders, record, results, triangle
from paper_runs import AUGREG, CIFAR, IMAGENET, PUBLISHED, as_published
from small_reports import line_of, small

from cl_bench.config import Transform
from cl_bench.errors import InputError
from cl_bench.report import write


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
