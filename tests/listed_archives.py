"""Noisy pictures, and small copies of ImageNet-R and DomainNet-200 on a server of one's own."""

import hashlib
import io
import tarfile
import zipfile

import toys
from PIL import Image

from cl_bench.data.listed_files import Archive, Published

WNIDS = {"n01": "goldfish", "n02": "hotdog", "n03": "tree_frog", "n04": "newt"}
TWO_CLASSES = {"real": ("bee",), "sketch": ("The_Tower",)}  # of DomainNet-200, by domain
Declared = tuple[dict[str, Published], tuple[Archive, ...]]


def picture(c: int, number: int) -> Image.Image:
    """A noisy picture whose size depends on its number: wide, tall, large and small ones."""
    width, height = ((40, 30), (30, 44), (500, 300), (260, 410))[number % 4]
    tile = toys.images(1, 4, 100 * c + number, 32).images[c]
    return Image.fromarray(tile).resize((width, height), Image.Resampling.NEAREST)


def content(c: int, number: int) -> bytes:
    buffer = io.BytesIO()
    picture(c, number).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def published(served, path: str, text: str) -> Published:
    served[path] = text.encode()
    return Published(served.url + path, hashlib.sha256(text.encode()).hexdigest())


def imagenet_r(served) -> Declared:
    """Lists and archive of four classes of five training and two test images, and one that no list names."""
    sides = {"train": range(5), "test": range(5, 7)}
    files = {f"imagenet-r/{w}/art_{n}.jpg": content(c, n) for c, w in enumerate(WNIDS) for n in range(7)}
    extra = {"imagenet-r/README.txt": b"hello", "imagenet-r/n09/art_0.jpg": content(0, 0)}
    served["/imagenet-r.tar"] = tar_of({**extra, **files})
    lists = {"names": published(served, "/names.txt", "".join(f"{w} {name}\n" for w, name in WNIDS.items()))}
    for side, numbers in sides.items():
        lines = [f"{w}/art_{n}.jpg\n" for n in numbers for w in reversed(WNIDS)]
        lists[side] = published(served, f"/{side}.txt", "".join(lines))
    digest = hashlib.md5(served["/imagenet-r.tar"]).hexdigest()
    return lists, (Archive(served.url + "/imagenet-r.tar", "imagenet-r", f"md5:{digest}"),)


def domainnet200(served, domains: dict[str, tuple[str, ...]] = TWO_CLASSES) -> Declared:
    """Lists and archives of the domains' classes, with four training and two test images each."""
    lists, archives, label = {"train": [], "test": []}, [], 0
    for domain, classes in domains.items():
        files = {f"{domain}/other/{domain}_9.jpg": b"unlisted"}
        for c in classes:
            for n in range(6):
                name = f"{domain}/{c}/{domain}_{n}.jpg"
                files[name] = content(label, n)
                lists["train" if n < 4 else "test"].append(f"{name} {label}")
            label += 1
        served[f"/{domain}.zip"] = zip_of(files)
        archives.append(Archive(f"{served.url}/{domain}.zip", domain))
    kinds = {side: published(served, f"/s_{side}.txt", "\n".join(lines)) for side, lines in lists.items()}
    return kinds, tuple(archives)


def tar_of(files: dict[str, bytes], mode: str = "w") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as tar:
        for name, data in files.items():
            item = tarfile.TarInfo(name)
            item.size = len(data)
            tar.addfile(item, io.BytesIO(data))
    return buffer.getvalue()


def zip_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, data in files.items():
            zipped.writestr(name, data)
    return buffer.getvalue()


def quiet(line: str) -> None:
    pass
