"""Toy pieces shared by the tests: a small ViT, a small data set in memory, small streams and runs."""

import copy
import functools
import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from timm.models.vision_transformer import VisionTransformer

from cl_bench.config import BackboneSpec, Transform
from cl_bench.data.images import ImageSet
from cl_bench.data.preprocess import Preprocess
from cl_bench.data.stream import Sides, Stream, StreamInfo
from cl_bench.nn import load
from cl_bench.nn.backbone import Backbone
from cl_bench.plugins import registry
from cl_bench.training.method import Method
from cl_bench.training.trainer import Trainer

SHARED = Path(__file__).resolve().parents[2] / "shared"
DOCUMENTED = "the documented example"
QUICK = {"passes": 3, "batch": 8, "learning_rate": 0.02, "temperature": 4.0, "epoch_mode": "plain"}


def vit(seed: int = 0, **changes) -> VisionTransformer:
    """A ViT of two blocks, 16 pixels, width 32, with LayerNorm scales away from 1."""
    torch.manual_seed(seed)
    settings = {
        "img_size": 16,
        "patch_size": 8,
        "embed_dim": 32,
        "depth": 2,
        "num_heads": 2,
        "num_classes": 0,
        **changes,
    }
    model = VisionTransformer(**settings)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.add_(0.3 * torch.randn_like(parameter))
            elif parameter.ndim > 1:
                parameter.mul_(3.0)
    return model.eval()


def backbone(seed: int = 0, **changes) -> Backbone:
    """The toy ViT, frozen."""
    model = vit(seed, **changes)
    spec = BackboneSpec(
        name="toy", image_size=model.patch_embed.img_size[0], mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)
    )
    return Backbone(model, spec, "0" * 64)


@functools.cache
def clip_files() -> tuple[str, Path]:
    """The name of a tiny open_clip model (two blocks, 16 pixels), and a file with random weights for it."""
    import open_clip
    from safetensors.torch import save_file

    folder = Path(tempfile.mkdtemp())
    vision = {"image_size": 16, "layers": 2, "width": 64, "head_width": 32, "patch_size": 8}
    text = {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1}
    for name, quick in (("tiny-test", False), ("tiny-test-quickgelu", True)):
        (folder / f"{name}.json").write_text(
            json.dumps({"embed_dim": 16, "quick_gelu": quick, "vision_cfg": vision, "text_cfg": text})
        )
    open_clip.add_model_config(folder)
    torch.manual_seed(0)
    model = open_clip.create_model("tiny-test", load_weights=False)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "ln_" in name:
                parameter.add_(0.3 * torch.randn_like(parameter))
            elif name.endswith("weight") and parameter.ndim > 1 and "token" not in name:
                parameter.mul_(2.0)
    save_file(
        {key: value.clone().contiguous() for key, value in model.state_dict().items()},
        folder / "weights.safetensors",
    )
    return "open_clip:tiny-test-quickgelu", folder / "weights.safetensors"


def clip_backbone() -> Backbone:
    """The tiny CLIP through the real loading code."""
    return copy.deepcopy(loaded_clip())


@functools.cache
def loaded_clip() -> Backbone:
    from open_clip.tokenizer import SimpleTokenizer

    SimpleTokenizer.__deepcopy__ = lambda self, memo: self  # nothing changes its large vocabulary
    name, weights = clip_files()
    return load.load(load.resolve(name, None, str(weights), {}))


def open_clip_model(name: str) -> torch.nn.Module:
    """open_clip's own model of a tiny configuration, with the same weights."""
    import open_clip
    from safetensors.torch import load_file

    model = open_clip.create_model(name, load_weights=False)
    model.load_state_dict(load_file(clip_files()[1]))
    return model.eval()


def equal(a: dict, b: dict, skip: str = "\n") -> bool:
    """Whether all tensors of a state are those of another, but where a key has `skip` in it."""
    return all(torch.equal(value, b[key]) for key, value in a.items() if skip not in key)


def backbone_for(name: str) -> Backbone:
    """The toy backbone that a method can work with."""
    reads = name != DOCUMENTED and registry.method_class(name).needs_names
    return clip_backbone() if reads or name.startswith("clip-") else backbone()


def images(per_class: int, classes: int, seed: int, size: int = 16) -> ImageSet:
    """Classes that differ in colour and stripe direction, with noise."""
    rng = np.random.default_rng([seed, 5])
    colours = np.random.default_rng(7).uniform(40, 215, (classes, 2, 3))
    labels = np.repeat(np.arange(classes), per_class)
    stripes = np.stack(
        [np.broadcast_to(np.arange(size) // (1 + c % 3) % 2, (size, size)) for c in range(classes)]
    )
    stripes = np.where((np.arange(classes) % 2 == 1)[:, None, None], stripes, stripes.transpose(0, 2, 1))[
        labels
    ][..., None]
    pixels = np.where(
        stripes, colours[labels, 0][:, None, None], colours[labels, 1][:, None, None]
    ) + rng.normal(0, 12, (len(labels), size, size, 3))
    return ImageSet(np.clip(pixels, 0, 255).astype(np.uint8), labels)


def sides(tasks: Sequence[Sequence[int]], seed: int = 0, per_class: int = 12) -> Sides:
    """Toy images of the tasks' classes: `per_class` to train on and 6 to test on."""
    classes = max(c for task in tasks for c in task) + 1
    train = images(per_class, classes, seed)
    return Sides(train, train, images(6, classes, seed + 1))


def stream_of(
    given: Sides,
    tasks: Sequence[Sequence[int]],
    joint: bool = False,
    augment: str = "none",
    device: str = "cpu",
) -> Stream:
    """A stream over these images."""
    transform = Transform(augment=augment, crop_scale=0.5)
    return Stream(given, tasks, Preprocess(backbone().spec, transform, 0, torch.device(device)), joint)


def stream(
    tasks: list[list[int]], joint: bool = False, seed: int = 0, augment: str = "none", per_class: int = 12
) -> Stream:
    """A stream over toy images; tasks are lists of classes, possibly of unequal length."""
    return stream_of(sides(tasks, seed, per_class), tasks, joint, augment)


def method_class(name: str) -> type[Method]:
    """A registered method's class, or that of the documentation's example."""
    if name != DOCUMENTED:
        return registry.method_class(name)
    text = (Path(__file__).resolve().parents[1] / "docs" / "extending.md").read_text(encoding="utf-8")
    [code] = re.findall(r"```python\n(\"\"\".*?)```", text, re.DOTALL)
    names: dict = {}
    exec(compile(code, "extending.md", "exec"), names)
    return names["METHOD"]


def method(name: str, num_tasks: int, trunk: Backbone | None = None, **options) -> Method:
    """A registered method on the toy ViT with quick settings."""
    kind = method_class(name)
    quick = {**QUICK, **kind.SMALL}
    known = {key: value for key, value in {**quick, **options}.items() if key in kind.Config.model_fields}
    return kind(
        kind.Config(**known), trunk or backbone_for(name), StreamInfo(init_seed=1, num_tasks=num_tasks)
    )


def learn(built: Method, given: Stream, upto: int | None = None, start: int = 0, **settings) -> list[Trainer]:
    """Learn the stream's tasks start..upto-1; returns the trainers."""
    trainers = []
    for index in range(start, given.num_tasks if upto is None else upto):
        torch.manual_seed(index)
        trainers.append(Trainer(data_seed=3, **settings))
        built.learn(given.task(index), trainers[-1])
    return trainers


def write_folder(
    root: Path,
    classes: int = 4,
    per_class: int = 6,
    test_per_class: int = 4,
    size: int = 32,
    suffix: str = ".png",
) -> Path:
    """A data set in folders, `train/<class>/*` and `test/<class>/*`, as image files."""
    from PIL import Image

    for side, count, seed in (("train", per_class, 0), ("test", test_per_class, 1)):
        made = images(count, classes, seed, size)
        for number, (pixels, c) in enumerate(zip(made.images, made.labels, strict=True)):
            folder = root / side / f"class_{c}"
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(folder / f"{number:03d}{suffix}")
    return root


def write_weights(path: Path) -> Path:
    """Random weights of timm's `test_vit`, for `--backbone test_vit --image-size 32 --weights`."""
    import timm
    from safetensors.torch import save_file

    torch.manual_seed(0)
    model = timm.create_model("test_vit", num_classes=0)
    save_file({name: value.clone() for name, value in model.state_dict().items()}, path)
    return path


def write_inputs(root: Path, classes: int = 4) -> dict:
    """A folder of images and the weights of a small ViT, as values of a request."""
    folder = write_folder(root / "data", classes)
    weights = write_weights(root / "w.safetensors")
    return {"dataset": f"folder:{folder}", "backbone": "test_vit", "weights": str(weights), "image_size": 32}


def command_options(values: dict) -> list[str]:
    """Values of a request as options of a command."""
    return [part for name, value in values.items() for part in (f"--{name.replace('_', '-')}", str(value))]


def set_options(*settings: str) -> list[str]:
    """Settings such as "batch=8" as options of a command."""
    return [part for setting in settings for part in ("--set", setting)]
