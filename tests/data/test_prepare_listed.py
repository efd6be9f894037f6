"""Archives of ImageNet-R and DomainNet-200 are downloaded, verified and unpacked, or refused by name."""

import hashlib
import io
import json
import os
import tarfile
import zipfile
from functools import partial
from pathlib import Path

import pytest
from cl_bench.datasets import domainnet200, imagenet_r
from listed_archives import quiet, tar_of, zip_of

from cl_bench.cli import main
from cl_bench.data import cache, fingerprints
from cl_bench.data.listed_files import Archive
from cl_bench.data.prepare_listed import prepare
from cl_bench.errors import DownloadFailed, InputError


def test_an_unpacked_copy_is_used_where_it_lies_and_never_written_to(imagenet, tmp_path):
    root = tmp_path / "copy"
    with tarfile.open(fileobj=io.BytesIO(imagenet["/imagenet-r.tar"])) as tar:
        tar.extractall(root, filter="data")
    before = sorted(path for path in root.rglob("*"))
    for place in (root, root / "imagenet-r"):
        prepare(imagenet_r.ImageNetR, place, quiet)
        assert imagenet_r.ImageNetR(str(place)).manifest() == imagenet_r.ImageNetR(str(root)).manifest()
    assert (
        sorted(path for path in root.rglob("*")) == before
        and ("/imagenet-r.tar", None) not in imagenet.requests
    )


def test_archives_already_on_disk_are_verified_and_unpacked(imagenet, tmp_path):
    root = tmp_path / "here"
    root.mkdir()
    (root / "imagenet-r.tar").write_bytes(imagenet["/imagenet-r.tar"])
    prepare(imagenet_r.ImageNetR, root, quiet)
    assert ("/imagenet-r.tar", None) not in imagenet.requests and len(
        imagenet_r.ImageNetR(str(root)).images("train")
    ) == 20
    other = tmp_path / "other"
    other.mkdir()
    (other / "imagenet-r.tar").write_bytes(b"not it")
    with pytest.raises(InputError, match="imagenet-r.tar is not the expected file .*move it away"):
        prepare(imagenet_r.ImageNetR, other, quiet)
    assert (other / "imagenet-r.tar").read_bytes() == b"not it"


def test_a_download_cut_at_half_goes_on_and_ends_in_the_same_data(imagenet, tmp_path):
    imagenet.cut.add("/imagenet-r.tar")
    with pytest.raises(DownloadFailed, match="repeat to go on"):
        prepare(imagenet_r.ImageNetR, None, quiet)
    assert not (tmp_path / "data" / "imagenet-r" / "imagenet-r").exists()
    with pytest.raises(InputError, match="run `cl-bench prepare imagenet-r`"):
        imagenet_r.ImageNetR()
    prepare(imagenet_r.ImageNetR, None, quiet)
    assert imagenet.requests[-1][1].startswith("bytes=") and len(imagenet_r.ImageNetR().images("train")) == 20


def test_changed_missing_and_other_files_are_named(imagenet, tmp_path):
    prepare(imagenet_r.ImageNetR, None, quiet)
    path = tmp_path / "data" / "imagenet-r" / "imagenet-r" / "n02" / "art_3.jpg"
    original = path.read_bytes()
    path.write_bytes(original[:-1] + b"x")
    with pytest.raises(InputError, match="art_3.jpg is not what it was when"):
        prepare(imagenet_r.ImageNetR, None, quiet)
    with pytest.raises(InputError, match="art_3.jpg has changed since it was prepared"):
        imagenet_r.ImageNetR().images("train")
    path.write_bytes(original + b"x")
    with pytest.raises(InputError, match="art_3.jpg has .* bytes, .* when it was prepared"):
        imagenet_r.ImageNetR()
    path.unlink()
    with pytest.raises(InputError, match="art_3.jpg is missing"):
        imagenet_r.ImageNetR()
    with pytest.raises(InputError, match="imagenet-r exists but is not complete; move it away"):
        prepare(imagenet_r.ImageNetR, None, quiet)


def test_an_image_exchanged_after_it_was_decoded_is_noticed(imagenet, tmp_path, monkeypatch):
    monkeypatch.setattr(fingerprints, "SAMPLE", 0)
    prepare(imagenet_r.ImageNetR, None, quiet)
    imagenet_r.ImageNetR().images("train")
    path = tmp_path / "data" / "imagenet-r" / "imagenet-r" / "n02" / "art_3.jpg"
    times, content = path.stat(), path.read_bytes()
    path.write_bytes(content[::-1])
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(
        InputError,
        match="art_3.jpg has changed since it was prepared; put it back or run `cl-bench prepare imagenet-r`",
    ):
        imagenet_r.ImageNetR()


def test_verify_reads_listed_files_that_look_unchanged(imagenet, monkeypatch):
    prepare(imagenet_r.ImageNetR, None, quiet)
    found, read = imagenet_r.ImageNetR(), []
    original = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: (read.append(path.name), original(path))[1])
    found.verify()
    assert len([name for name in read if name.endswith(".jpg")]) == 28


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", '{"files": {}}', '{"files": 1, "base": "x", "digest": "y"}']
)
def test_damaged_notes_of_what_was_prepared_are_named(imagenet, tmp_path, damage):
    prepare(imagenet_r.ImageNetR, None, quiet)
    [notes] = (tmp_path / "data" / ".prepared" / "imagenet-r").glob("files-*.json")
    notes.write_text(damage, encoding="utf-8")
    for open_it in (imagenet_r.ImageNetR, lambda: prepare(imagenet_r.ImageNetR, None, quiet)):
        with pytest.raises(
            InputError,
            match="files-.*.json, the notes of what was prepared, cannot be read "
            ".*remove it and prepare again",
        ):
            open_it()


def test_domainnet_unpacks_what_the_lists_name_and_remembers_the_archives(domains, tmp_path):
    prepare(domainnet200.DomainNet200, None, quiet)
    root = tmp_path / "data" / "domainnet200"
    assert not list(root.rglob("*_9.jpg"))
    found = domainnet200.DomainNet200()
    assert found.class_names == ["bee", "The_Tower"] and found.text_names() == ["bee", "The Tower"]
    assert found.images("train").labels.tolist() == [0] * 4 + [1] * 4
    recorded = json.loads(
        (tmp_path / "data" / ".prepared" / "domainnet200" / "archives.json").read_text(encoding="utf-8")
    )
    assert recorded[domains.url + "/real.zip"] == {
        "size": len(domains["/real.zip"]),
        "sha256": hashlib.sha256(domains["/real.zip"]).hexdigest(),
    }
    domains["/real.zip"] += b"x"
    for path in (root / "real", root / "real.zip"):
        path.rename(tmp_path / f"away_{path.name}")
    with pytest.raises(
        DownloadFailed, match="real.zip sent is not the expected file .*differ from those of its first use"
    ):
        prepare(domainnet200.DomainNet200, None, quiet)
    assert not (root / "real.zip").exists() and not (root / "real").exists()


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        (
            "zip",
            {"sketch/The_Tower/sketch_2.jpg": None},
            "lacks sketch/The_Tower/sketch_2.jpg, which the split lists name",
        ),
        ("zip", {"../evil.txt": b"x"}, "unsafe member .*evil.txt' is outside"),
        ("zip", {"/evil.txt": b"x"}, "unsafe member .*evil.txt' is outside"),
        (
            "tar",
            {"imagenet-r/n01/art_0.jpg": None, "imagenet-r/n02/art_0.jpg": None},
            "lacks imagenet-r/n01/art_0.jpg and 1 more",
        ),
        ("tar", {"../evil.txt": b"x"}, "unsafe member"),
    ],
)
def test_archives_that_lack_a_member_or_reach_outside_leave_nothing(
    kind, changes, message, request, tmp_path, monkeypatch
):
    served = request.getfixturevalue("domains" if kind == "zip" else "imagenet")
    path, kind_of_source = (
        ("/sketch.zip", domainnet200.DomainNet200)
        if kind == "zip"
        else ("/imagenet-r.tar", imagenet_r.ImageNetR)
    )
    if kind == "zip":
        with zipfile.ZipFile(io.BytesIO(served[path])) as zipped:
            files = {name: zipped.read(name) for name in zipped.namelist()}
    else:
        with tarfile.open(fileobj=io.BytesIO(served[path])) as tar:
            files = {item.name: tar.extractfile(item).read() for item in tar}
    changed = {name: data for name, data in {**files, **changes}.items() if data is not None}
    served[path] = (zip_of if kind == "zip" else tar_of)(changed)
    if kind == "tar":
        digest = hashlib.md5(served[path]).hexdigest()
        monkeypatch.setattr(
            kind_of_source, "ARCHIVES", (Archive(served.url + path, "imagenet-r", f"md5:{digest}"),)
        )
    with pytest.raises(InputError, match=message):
        prepare(kind_of_source, tmp_path / "root", quiet)
    assert not list(tmp_path.rglob("evil*")) and not list((tmp_path / "root").glob(".*partial"))
    assert not (tmp_path / "root" / ("sketch" if kind == "zip" else "imagenet-r")).exists()


def test_a_changed_split_list_is_refused(imagenet, tmp_path):
    prepare(imagenet_r.ImageNetR, None, quiet)
    path = tmp_path / "data" / ".prepared" / "imagenet-r" / "test.txt"
    path.write_text(path.read_text(encoding="utf-8") + "n01/art_0.jpg\n", encoding="utf-8")
    with pytest.raises(
        InputError,
        match="test.txt is not the published list .*move it away and run `cl-bench prepare imagenet-r`",
    ):
        imagenet_r.ImageNetR()
    with pytest.raises(InputError, match="test.txt is not the expected file"):
        prepare(imagenet_r.ImageNetR, None, quiet)


def test_an_archive_that_proves_damaged_is_not_remembered(domains, tmp_path):
    whole = domains["/real.zip"]
    domains["/real.zip"] = whole[: len(whole) // 2]
    with pytest.raises(InputError, match="real.zip"):
        prepare(domainnet200.DomainNet200, None, quiet)
    (tmp_path / "data" / "domainnet200" / "real.zip").unlink()
    domains["/real.zip"] = whole
    prepare(domainnet200.DomainNet200, None, quiet)
    assert len(domainnet200.DomainNet200().images("train")) == 8


def test_a_symlink_out_of_the_archive_is_refused(imagenet, tmp_path, monkeypatch):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        link = tarfile.TarInfo("imagenet-r/n01")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc"
        tar.addfile(link)
    imagenet["/imagenet-r.tar"] = buffer.getvalue()
    digest = hashlib.md5(buffer.getvalue()).hexdigest()
    monkeypatch.setattr(
        imagenet_r.ImageNetR,
        "ARCHIVES",
        (Archive(imagenet.url + "/imagenet-r.tar", "imagenet-r", f"md5:{digest}"),),
    )
    with pytest.raises(InputError, match="unsafe member"):
        prepare(imagenet_r.ImageNetR, tmp_path / "root", quiet)


def test_prepare_and_bare_domainnet_at_the_command_line(imagenet, capsys, monkeypatch):
    monkeypatch.setattr(imagenet_r, "PREPARE", partial(prepare, imagenet_r.ImageNetR))
    for arguments, code, text in (
        (["prepare", "imagenet-r"], 0, "holds all 28 images of imagenet-r"),
        (["prepare", "domainnet"], 2, "three data sets of continual learning bear this name: domainnet200"),
        (["run", "--dataset", "domainnet"], 2, "three data sets"),
        (["prepare", "imagenetr"], 2, "did you mean 'imagenet-r'"),
    ):
        with pytest.raises(SystemExit) as exit_:
            main(arguments)
        captured = capsys.readouterr()
        assert exit_.value.code == code and text in captured.out + captured.err


def test_the_data_folder_is_the_users_choice(monkeypatch, tmp_path):
    monkeypatch.setenv("CL_BENCH_DATA", str(tmp_path))
    assert cache.data_folder("x") == tmp_path / "x"
