"""Downloads from a loopback server: resumed, verified, unpacked whole or not at all."""

import hashlib
import io
import random
import struct
import tarfile
import time
import zipfile
from types import SimpleNamespace

import loopback
import pytest
import requests
import users
from made import in_every_header

from cl_bench.data import download
from cl_bench.data.download import fetch, unpack
from cl_bench.errors import DownloadFailed, InputError

CONTENT = bytes(range(256)) * 20000  # 5 MB
SHA256 = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


@pytest.fixture
def server():
    with loopback.serve() as served:
        served.update(dict.fromkeys(("/file", "/cut", "/plain"), CONTENT))
        served.cut.add("/cut")
        served.without_ranges.add("/plain")
        yield served


def test_a_file_is_fetched_once_and_verified(server, tmp_path):
    target = fetch(f"{server.url}/file", tmp_path / "new" / "a.bin", SHA256)
    assert target.read_bytes() == CONTENT
    fetch(f"{server.url}/file", target, SHA256)
    assert len(server.requests) == 1 and list(target.parent.iterdir()) == [target]


def test_a_download_cut_at_half_goes_on_where_it_stopped(server, tmp_path):
    target = tmp_path / "a.bin"
    broke = r"cannot download .*/cut [(]the connection broke, 2.56 MB are kept in a.bin.part[)]"
    with pytest.raises(DownloadFailed, match=f"{broke}; repeat to go on, or place the file yourself as "):
        fetch(f"{server.url}/cut", target, SHA256)
    half = len(CONTENT) // 2
    assert not target.exists() and (tmp_path / "a.bin.part").stat().st_size <= half
    have = (tmp_path / "a.bin.part").stat().st_size
    fetch(f"{server.url}/cut", target, SHA256)
    assert target.read_bytes() == CONTENT and server.requests[-1] == (
        "/cut",
        f"bytes={have}-" if have else None,
    )
    assert list(tmp_path.iterdir()) == [target]


def test_a_server_without_ranges_sends_all_of_it_again(server, tmp_path):
    (tmp_path / "a.bin.part").write_bytes(CONTENT[:1000])
    assert fetch(f"{server.url}/plain", tmp_path / "a.bin", SHA256).read_bytes() == CONTENT


def test_a_file_is_not_compressed_on_its_way_where_a_part_would_be_of_something_else(server, tmp_path):
    server.compressed.add("/cut")
    with pytest.raises(DownloadFailed):
        fetch(f"{server.url}/cut", tmp_path / "a.bin", SHA256)
    assert fetch(f"{server.url}/cut", tmp_path / "a.bin", SHA256).read_bytes() == CONTENT


def test_a_part_longer_than_the_file_is_dropped(server, tmp_path):
    (tmp_path / "a.bin.part").write_bytes(CONTENT + b"more")
    assert fetch(f"{server.url}/file", tmp_path / "a.bin", SHA256).read_bytes() == CONTENT


def test_another_digest_is_refused_and_nothing_is_kept(server, tmp_path):
    other = (
        r"sent is not the expected file [(]its sha256 is not 0{12}...[)] and was not kept; repeat, or place"
    )
    with pytest.raises(DownloadFailed, match=other):
        fetch(f"{server.url}/file", tmp_path / "a.bin", "sha256:" + "0" * 64)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "a.bin").write_bytes(b"mine")
    with pytest.raises(InputError, match="move it away"):
        fetch(f"{server.url}/file", tmp_path / "a.bin", SHA256)
    assert (tmp_path / "a.bin").read_bytes() == b"mine"


def test_unpacking_on_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    path = archive(tmp_path / "a.tar.gz", {"data/x": b"1", "data/y": CONTENT})
    original = download.tarfile.TarFile.extract

    def full(self, item, *arguments, **settings):
        if item.name == "data/y":
            raise OSError(28, "No space left on device")
        return original(self, item, *arguments, **settings)

    monkeypatch.setattr(download.tarfile.TarFile, "extract", full)
    with pytest.raises(InputError, match="cannot unpack .*No space left on device"):
        unpack(path, "data", tmp_path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_part_that_is_the_whole_file_is_not_asked_for_again(server, tmp_path):
    (tmp_path / "a.bin.part").write_bytes(CONTENT)
    assert fetch(f"{server.url}/file", tmp_path / "a.bin", SHA256).read_bytes() == CONTENT
    assert server.requests == [("/file", f"bytes={len(CONTENT)}-")]


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (404, "the server answered 404 Not Found[)]; place the file yourself as "),
        (403, "the server answered 403 Forbidden[)]; place the file yourself as "),
        (503, "the server answered 503 Service Unavailable[)]; repeat later, or place the file yourself as "),
    ],
)
def test_what_the_server_refuses_with_is_said_and_nothing_is_lost(server, tmp_path, status, message):
    (tmp_path / "a.bin.part").write_bytes(CONTENT[:5000])
    server.status["/file"] = status
    with pytest.raises(DownloadFailed, match=message) as error:
        fetch(f"{server.url}/file", tmp_path / "a.bin", SHA256)
    assert "\n" not in str(error.value) and (tmp_path / "a.bin.part").read_bytes() == CONTENT[:5000]
    del server.status["/file"]
    assert fetch(f"{server.url}/file", tmp_path / "a.bin", SHA256).read_bytes() == CONTENT
    assert server.requests[-1] == ("/file", "bytes=5000-")


@pytest.mark.parametrize("host", ["127.0.0.1:9", "archives.invalid"])
def test_without_a_server_an_answer_comes_within_seconds(tmp_path, host, monkeypatch):
    monkeypatch.delenv("http_proxy", raising=False)
    start = time.monotonic()
    what_to_do = f"repeat to go on, or place the file yourself as {tmp_path / 'a.bin'}"
    with pytest.raises(DownloadFailed, match=f"{host} does not answer[)]; {what_to_do}"):
        fetch(f"http://{host}/file", tmp_path / "a.bin", SHA256)
    assert time.monotonic() - start < 10


def test_a_disk_that_fills_up_keeps_what_came(server, tmp_path, monkeypatch):
    original = requests.Response.iter_content

    def filling(response, size):
        chunks = original(response, size)
        yield next(chunks)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(requests.Response, "iter_content", filling)
        with pytest.raises(InputError, match="cannot write .*a.bin: No space left on device; free space"):
            fetch(f"{server.url}/file", tmp_path / "a.bin", SHA256)
    assert (tmp_path / "a.bin.part").read_bytes() == CONTENT[: download.CHUNK_BYTES]
    assert fetch(f"{server.url}/file", tmp_path / "a.bin", SHA256).read_bytes() == CONTENT


def test_a_folder_of_another_user_is_one_line(server, tmp_path):
    (tmp_path / "theirs").mkdir()
    with users.read_only(tmp_path / "theirs"):
        for target in (tmp_path / "theirs" / "a.bin", tmp_path / "theirs" / "new" / "a.bin"):
            advice = "free space, or choose another folder with --root or .CL_BENCH_DATA"
            with pytest.raises(InputError, match=f"cannot write {target}: Permission denied; {advice}"):
                fetch(f"{server.url}/file", target, SHA256)
    assert list((tmp_path / "theirs").iterdir()) == []


def archive(path, members: dict[str, bytes]):
    with tarfile.open(path, "w:gz") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def test_an_archive_is_unpacked_whole(tmp_path):
    unpack(archive(tmp_path / "a.tar.gz", {"data/x": b"1", "data/sub/y": b"2"}), "data", tmp_path)
    assert (tmp_path / "data" / "sub" / "y").read_bytes() == b"2"
    assert {path.name for path in tmp_path.iterdir()} == {"a.tar.gz", "data"}


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"data/x": b"1", "../evil": b"2"}, "unsafe member"),
        ({"data/x": b"1", "/tmp/evil_of_cl_bench": b"2"}, None),
        ({"other/x": b"1"}, "does not hold a folder 'data'"),
    ],
)
def test_members_outside_the_folder_are_refused(tmp_path, members, message):
    root = tmp_path / "root"
    root.mkdir()
    path = archive(tmp_path / "a.tar.gz", members)
    if (
        message is None
    ):  # a leading slash is taken off: the member lands in the temporary folder and is thrown away with it
        unpack(path, "data", root)
        assert {p.name for p in root.iterdir()} == {"data"}
    else:
        with pytest.raises(InputError, match=message):
            unpack(path, "data", root)
        assert list(root.iterdir()) == []
    assert not (tmp_path / "evil").exists()


def test_a_truncated_archive_and_an_occupied_place_are_refused(tmp_path):
    path = archive(tmp_path / "a.tar.gz", {"data/x": CONTENT})
    (tmp_path / "data").mkdir()
    with pytest.raises(InputError, match="nothing of yours is deleted"):
        unpack(path, "data", tmp_path)
    (tmp_path / "data").rmdir()
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(InputError, match="is damaged"):
        unpack(path, "data", tmp_path)
    assert list(tmp_path.iterdir()) == [path]


def packed(kind: str) -> bytes:
    """Two files as a zip or tar archive."""
    buffer, files = io.BytesIO(), {"data/x": bytes(range(200)), "data/y": b"y" * 300}
    if kind in ("stored", "deflated", "bzip2", "lzma"):
        method = {
            "stored": zipfile.ZIP_STORED,
            "deflated": zipfile.ZIP_DEFLATED,
            "bzip2": zipfile.ZIP_BZIP2,
            "lzma": zipfile.ZIP_LZMA,
        }[kind]
        with zipfile.ZipFile(buffer, "w", method) as zipped:
            for name, data in files.items():
                zipped.writestr(name, data)
    else:
        with tarfile.open(fileobj=buffer, mode=f"w:{kind}") as tar:
            for name, data in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


UNPACKABLE = [
    (
        "of unknown compression",
        lambda: in_every_header(packed("stored"), 8, struct.pack("<H", 97)),
        "is damaged or not packed as expected: .*compression",
    ),
    (
        "encrypted",
        lambda: in_every_header(packed("stored"), 6, struct.pack("<H", 1)),
        "is damaged or not packed as expected: .*password required",
    ),
    ("cut short", lambda: packed("deflated")[:-30], "is damaged or not packed"),
    ("no archive", lambda: b"<html>not found</html>" * 99, "is damaged or not packed"),
    ("empty", lambda: b"", "is damaged or not packed"),
]


@pytest.mark.parametrize(
    ("made", "message"),
    [(made, message) for _, made, message in UNPACKABLE],
    ids=[name for name, *_ in UNPACKABLE],
)
def test_an_archive_that_cannot_be_unpacked_is_one_line_and_leaves_nothing(tmp_path, made, message):
    path = tmp_path / "a.zip"
    path.write_bytes(made())
    with pytest.raises(InputError, match=message) as error:
        unpack(path, "data", tmp_path)
    assert "\n" not in str(error.value) and list(tmp_path.iterdir()) == [path]


def test_a_member_larger_than_the_disk_is_refused_before_anything_is_written(tmp_path):
    info = tarfile.TarInfo("data/x")
    info.size = 1 << 60
    path = tmp_path / "a.tar"
    path.write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(10240))
    with pytest.raises(
        InputError, match="'data/x' has 1,152,921,504,606,846,976 bytes by its header, and .* are free in"
    ):
        unpack(path, "data", tmp_path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", ["deflated", "gz"])
def test_an_archive_that_does_not_fit_is_refused_before_it_is_written(tmp_path, monkeypatch, kind):
    path = tmp_path / "archive"
    path.write_bytes(packed(kind))
    monkeypatch.setattr(download.shutil, "disk_usage", lambda place: SimpleNamespace(free=250))
    with pytest.raises(InputError, match="'data/y' has 300 bytes by its header, and 250 are free in"):
        unpack(path, "data", tmp_path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", ["stored", "deflated", "bzip2", "lzma", "gz", "bz2", "xz", ""])
def test_mangled_archives_are_unpacked_or_one_line(tmp_path, kind):
    draw, whole = random.Random(0), packed(kind)
    for attempt in range(40):
        data = bytearray(whole)
        for _ in range(draw.choice((1, 2, 5))):
            data[
                draw.choice(
                    (draw.randrange(len(data)), draw.randrange(60), len(data) - 1 - draw.randrange(60))
                )
            ] = draw.randrange(256)
        root = tmp_path / str(attempt)
        root.mkdir()
        (root / "archive").write_bytes(data)
        try:
            unpack(root / "archive", "data", root)
        except InputError as error:
            assert "\n" not in str(error) and [path.name for path in root.iterdir()] == ["archive"]


def test_damaged_notes_of_archives_are_named(server, tmp_path):
    (tmp_path / "notes.json").write_text("[1", encoding="utf-8")
    with pytest.raises(
        InputError,
        match="notes.json, the notes of archives used before, cannot be read .*remove it and repeat",
    ):
        download.fetch_unpublished(f"{server.url}/file", tmp_path / "a.bin", tmp_path / "notes.json")
