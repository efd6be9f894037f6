"""All of DomainNet from small archives of its six domains, by lists whose digest nobody publishes."""

import json

import numpy as np
import pytest
from cl_bench.datasets import domainnet200, domainnet345
from listed_archives import content, quiet, zip_of

from cl_bench.data.listed_files import Archive, Published
from cl_bench.data.prepare_listed import prepare
from cl_bench.errors import InputError
from cl_bench.plugins import registry

CLASSES = ["The_Tower", "bee"]
Kind = domainnet345.DomainNet345


@pytest.fixture
def six(served, own_data, monkeypatch):
    """Two classes with two training images and one test image in each domain."""
    lists, archives = {}, []
    for domain in domainnet200.DOMAINS:
        rows = [(c, n) for n in range(3) for c in range(2)]
        names = {(c, n): f"{domain}/{CLASSES[c]}/{domain}_{c}_{n}.jpg" for c, n in rows}
        for side, numbers in (("train", (0, 1)), ("test", (2,))):
            lines = [f"{names[c, n]} {c}" for c, n in rows if n in numbers]
            served[f"/{domain}_{side}.txt"] = "\n".join(lines).encode()
            lists[f"{domain}_{side}"] = Published(f"{served.url}/{domain}_{side}.txt")
        served[f"/{domain}.zip"] = zip_of({names[c, n]: content(c, n) for c, n in rows})
        archives.append(Archive(f"{served.url}/{domain}.zip", domain))
    monkeypatch.setattr(Kind, "LISTS", lists)
    monkeypatch.setattr(Kind, "ARCHIVES", tuple(archives))
    monkeypatch.setattr(Kind, "CLASSES", 2)
    monkeypatch.setattr(Kind, "IMAGES", {"train": 24, "test": 12})
    return served


def test_the_lists_are_the_authors_and_so_are_their_counts():
    assert Kind.CLASSES == 345 == 5 * 69
    by_domain = {  # of the authors' lists
        "clipart": (33525, 14604), "infograph": (36023, 15582), "painting": (50416, 21850),
        "quickdraw": (120750, 51750), "real": (120906, 52041), "sketch": (48212, 20916),
    }  # fmt: skip
    for place, side in enumerate(("train", "test")):
        assert Kind.IMAGES[side] == sum(counts[place] for counts in by_domain.values())
        for domain in by_domain:
            assert Kind.LISTS[f"{domain}_{side}"].url.endswith(f"/domainnet/txt/{domain}_{side}.txt")


def test_every_class_has_images_of_all_domains(six):
    prepare(Kind, None, quiet)
    found = registry.source_class("domainnet345")()
    assert found.class_names == CLASSES
    train = found.images("train")
    assert train.labels.tolist() == [0, 1] * 12 and found.labels("test").tolist() == [0, 1] * 6
    [first] = train.pixels(np.array([0]))
    [same] = train.pixels(np.array([4]))  # of the next domain, which has the same pictures here
    assert np.array_equal(first, same) and first.shape == (30, 40, 3)


def test_lists_are_remembered_from_their_first_use(six, tmp_path):
    prepare(Kind, None, quiet)
    known = Kind().manifest_digest()
    recorded = json.loads((tmp_path / "data/.prepared/domainnet345/archives.json").read_text("utf-8"))
    assert f"{six.url}/real_train.txt" in recorded and f"{six.url}/real.zip" in recorded
    path = tmp_path / "data/.prepared/domainnet345/real_train.txt"
    original = path.read_bytes()
    path.write_bytes(b"\n".join(reversed(original.splitlines())))
    with pytest.raises(InputError, match="real_train.txt is not the published list"):
        Kind()
    with pytest.raises(InputError, match="real_train.txt is not the expected file .*first use"):
        prepare(Kind, None, quiet)
    path.write_bytes(original)
    assert Kind().manifest_digest() == known


@pytest.mark.parametrize(
    ("text", "message"),
    [(b"<html>not found</html>", "the train lists of domainnet345 are not what is expected; remove "),
     (b"real/bee/real_1_0.jpg 1", "name 21 images of 2 classes, expected 24 of 2; remove")],
)  # fmt: skip
def test_a_page_or_a_part_in_place_of_a_list_is_refused_and_not_remembered(six, tmp_path, text, message):
    six["/real_train.txt"] = text
    with pytest.raises(InputError, match=message):
        prepare(Kind, None, quiet)
    assert not (tmp_path / "data/.prepared/domainnet345/archives.json").exists()


def test_the_word_domainnet_says_what_there_is():
    with pytest.raises(InputError, match="domainnet345 .the 345 classes over all six domains"):
        registry.find("datasets", "domainnet")
