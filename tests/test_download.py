"""Downloads from a loopback server: resumed, verified, unpacked whole or not at all."""

import hashlib
import io
import tarfile

import loopback
import pytest

from cl_bench import download
from cl_bench.download import fetch, unpack
from cl_bench.errors import InputError

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
    with pytest.raises(InputError, match="cannot download .*repeat to go on, or place the file yourself"):
        fetch(f"{server.url}/cut", target, SHA256)
    half = len(CONTENT) // 2
    assert not target.exists() and (tmp_path / "a.bin.part").stat().st_size <= half
    have = (tmp_path / "a.bin.part").stat().st_size
    fetch(f"{server.url}/cut", target, SHA256)
    assert target.read_bytes() == CONTENT and server.requests[-1] == ("/cut", f"bytes={have}-" if have else None)
    assert list(tmp_path.iterdir()) == [target]


def test_a_server_without_ranges_sends_all_of_it_again(server, tmp_path):
    (tmp_path / "a.bin.part").write_bytes(CONTENT[:1000])
    assert fetch(f"{server.url}/plain", tmp_path / "a.bin", SHA256).read_bytes() == CONTENT


def test_a_part_longer_than_the_file_is_dropped(server, tmp_path):
    (tmp_path / "a.bin.part").write_bytes(CONTENT + b"more")
    assert fetch(f"{server.url}/file", tmp_path / "a.bin", SHA256).read_bytes() == CONTENT


def test_another_digest_is_refused_and_nothing_is_kept(server, tmp_path):
    with pytest.raises(InputError, match="is not the expected file"):
        fetch(f"{server.url}/file", tmp_path / "a.bin", "sha256:" + "0" * 64)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "a.bin").write_bytes(b"mine")
    with pytest.raises(InputError, match="move it away"):
        fetch(f"{server.url}/file", tmp_path / "a.bin", SHA256)
    assert (tmp_path / "a.bin").read_bytes() == b"mine"


def test_a_full_disk_is_one_line_and_the_download_goes_on_later(server, tmp_path, monkeypatch):
    def full(source, target):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(download.shutil, "move", full)
        with pytest.raises(InputError, match="cannot write .*a.bin: No space left on device; free space or choose another --root"):
            fetch(f"{server.url}/file", tmp_path / "a.bin", SHA256)
    assert [path.name for path in tmp_path.iterdir()] == ["a.bin.part"]
    (tmp_path / "a.bin.part").write_bytes(CONTENT[:5000])
    assert fetch(f"{server.url}/file", tmp_path / "a.bin", SHA256).read_bytes() == CONTENT


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


def test_a_missing_file_or_server_says_where_to_place_it(server, tmp_path):
    for url in (f"{server.url}/gone", "http://127.0.0.1:9/file"):
        with pytest.raises(InputError, match=f"place the file yourself as {tmp_path / 'a.bin'}"):
            fetch(url, tmp_path / "a.bin", SHA256)


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
    if message is None:  # a leading slash is taken off: the member lands in the temporary folder and is thrown away with it
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
