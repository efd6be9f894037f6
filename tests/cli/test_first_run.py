"""What a user does first, from archives and weights on servers of one's own to the table of a run."""

import hashlib
from functools import partial

import commands
import hub_server
import listed_archives
import loopback
import pytest
import small_cifar
from cl_bench.datasets import cifar100
from safetensors.torch import load

TINY, SMALLEST = "vit_tiny_patch16_224.augreg_in21k", "test_vit.r160_in1k"
QUICK = ("--jobs", "1", "--threads", "1", "--set", "passes=1", "--set", "batch=6")


@pytest.fixture
def archives():
    with loopback.serve() as served:
        yield served


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub that processes started from here are pointed at, with folders of their own for all they keep."""
    with loopback.serve() as served:
        home = {
            "HF_HOME": tmp_path / "hf",
            "CL_BENCH_DATA": tmp_path / "data",
            "CL_BENCH_CACHE": tmp_path / "c",
        }
        for name, value in {**hub_server.environment(served), **home}.items():
            monkeypatch.setenv(name, str(value))
        yield served


def cifar(archives, classes: int) -> str:
    """What declares a small archive to be the authors'."""
    names = [f"class {number}" for number in range(classes)]
    archives["/cifar-100-python.tar.gz"], digests = small_cifar.archive(names)
    sha256 = hashlib.sha256(archives["/cifar-100-python.tar.gz"]).hexdigest()
    url = f"{archives.url}/cifar-100-python.tar.gz"
    return (
        "from cl_bench.datasets import cifar100\n"
        f"cifar100.URL, cifar100.SHA256, cifar100.MD5 = {url!r}, {sha256!r}, {digests!r}\n"
    )


def listed(source: str, declared: listed_archives.Declared) -> str:
    """What declares lists and archives to be a data set's published ones."""
    module, _, name = source.partition(":")
    return (
        "from cl_bench.data.listed_files import Archive, Published\n"
        f"from cl_bench.datasets.{module} import {name}\n"
        f"{name}.LISTS, {name}.ARCHIVES = {declared[0]!r}, {declared[1]!r}\n"
    )


def do(folder, patch: str, *words) -> tuple[int, str, str]:
    return commands.finish(commands.start(folder, *words, patch=patch))


def finished(folder) -> list[int]:
    return [len(record.tasks) for record in commands.records(folder) if record.status == "done"]


def test_an_archive_that_is_not_there_is_one_line_and_exit_code_1(archives, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("CL_BENCH_DATA", str(tmp_path))
    monkeypatch.setattr(cifar100, "URL", f"{archives.url}/cifar-100-python.tar.gz")
    assert commands.command("prepare", "cifar100") == 1
    [line] = capfd.readouterr().err.splitlines()
    assert line.startswith(
        f"error: cannot download {archives.url}/cifar-100-python.tar.gz (the server answered 404"
    )
    assert line.endswith(f"place the file yourself as {tmp_path / 'cifar100' / 'cifar-100-python.tar.gz'}")


@pytest.mark.parametrize("methods", ["nsp2", "paper"])
def test_weights_that_do_not_come_are_one_line_and_no_method_is_left_out(
    archives, tmp_path, monkeypatch, capfd, methods
):
    hub_server.point(monkeypatch, archives.url, tmp_path)
    backbone = ("--backbone", SMALLEST, "--image-size", "32")
    assert commands.command("check", "--methods", methods, "--splits", "10", *backbone) == 1
    [line] = capfd.readouterr().err.splitlines()
    assert line.startswith(f"error: cannot download the weights of {SMALLEST!r} ({archives.url} answered 404")


@pytest.mark.slow
def test_cifar100_from_the_broken_download_of_its_archive_to_a_table(archives, hub, tmp_path):
    patch, archive = cifar(archives, 10), "/cifar-100-python.tar.gz"
    archives.cut.add(archive)
    code, _, err = do(tmp_path, patch, "prepare", "cifar100")
    *said, error = err.splitlines()
    assert code == 1 and error.startswith("error: cannot download ") and "repeat to go on" in error
    assert said == [f"downloading cifar-100-python.tar.gz ({len(archives[archive]) / 1000:.2f} kB)"]
    code, out, err = do(tmp_path, patch, "prepare", "cifar100")
    assert code == 0 and "is complete" in out and "are there)" in err
    assert archives.requests[-1][1].startswith("bytes=") and len(archives.requests) == 2

    weights = hub_server.publish_timm(hub, TINY)
    hub.cut.add(weights)
    run = ("run", "--methods", "nsp2", "--dataset", "cifar100", "--splits", "2", "--backbone", TINY, *QUICK)
    code, out, err = do(tmp_path, patch, *run)
    assert code == 0 and finished(tmp_path) == [2] and "VPT-NSP²" in out, err
    assert f"downloading timm/{TINY}/model.safetensors (" in err
    whole = hub.content(weights)
    [first, then] = [asked for path, asked in hub.requests if path == weights]
    assert first is None and 0 < int(then.removeprefix("bytes=").rstrip("-")) <= len(whole) // 2
    [blob] = (tmp_path / "hf" / "hub").glob("models--timm--vit_tiny*/blobs/*")
    assert blob.read_bytes() == whole and "head.weight" in load(whole)

    hub.status[weights], archives.status[archive] = 503, 503
    code, _, err = do(tmp_path, patch, *run)
    assert code == 0 and "nothing to train" in err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "source", "make"),
    [
        ("imagenet-r", "imagenet_r:ImageNetR", listed_archives.imagenet_r),
        (
            "domainnet200",
            "domainnet200:DomainNet200",
            partial(listed_archives.domainnet200, domains={"real": ("bee", "owl"), "sketch": ("bat", "cow")}),
        ),
    ],
)
def test_listed_images_from_their_archives_to_a_table(archives, hub, tmp_path, name, source, make):
    patch = listed(source, make(archives))
    code, out, err = do(tmp_path, patch, "prepare", name)
    assert code == 0 and f"images of {name}" in out, err
    assert {path for path, _ in archives.requests} == set(archives)
    hub_server.publish_timm(hub, SMALLEST)
    run = ("run", "--methods", "nsp2", "--dataset", name, "--splits", "2", "--backbone", SMALLEST, *QUICK)
    code, out, err = do(tmp_path, patch, *run)
    assert code == 0 and finished(tmp_path) == [2] and "VPT-NSP²" in out, err


@pytest.mark.slow
def test_the_papers_backbone_is_asked_for_by_its_true_name_and_shapes(archives, hub, tmp_path):
    patch, name = cifar(archives, 20), "vit_base_patch16_224.augreg_in21k"
    weights = hub_server.publish_timm(hub, name)
    assert do(tmp_path, patch, "prepare", "cifar100")[0] == 0
    code, out, err = do(
        tmp_path, patch, "plan", "--methods", "nsp2", "--dataset", "cifar100", "--splits", "10"
    )
    assert code == 0 and "missing" in out and "410.4" in err, err
    assert [path for path, _ in hub.requests if path == weights] == [weights]


@pytest.mark.slow
def test_a_text_tower_of_open_clip_is_joined_to_a_network_of_timm(hub, tmp_path):
    hub_server.publish_timm(hub, SMALLEST)
    weights = hub_server.publish_open_clip(hub, "ViT-B-32", "laion2b_s34b_b79k")
    joined = f"{SMALLEST}+open_clip:ViT-B-32/laion2b_s34b_b79k"
    code, _, err = do(
        tmp_path, "", "check", "--methods", "dualp-lgcl", "--dataset", "glyphs", "--splits", "10",
        "--backbone", joined,
    )  # fmt: skip
    assert code == 2 and "512" in err and len(err.splitlines()) == 3
    assert [path for path, _ in hub.requests if path == weights] == [weights]
