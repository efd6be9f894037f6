"""CLIP models whose text features are as long as a small ViT's, to read class names beside it."""

import functools
import json
import tempfile
from pathlib import Path

import open_clip
import torch
from safetensors.torch import save_file


@functools.cache
def reader(length: int, words: int = 77) -> tuple[str, Path]:
    """The name of a tiny model with text features of this length, which reads so many tokens; its weights."""
    folder, name = Path(tempfile.mkdtemp()), f"reader-{length}-{words}"
    vision = {"image_size": 16, "layers": 1, "width": 64, "head_width": 32, "patch_size": 8}
    text = {"context_length": words, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1}
    config = {"embed_dim": length, "vision_cfg": vision, "text_cfg": text}
    (folder / f"{name}.json").write_text(json.dumps(config))
    open_clip.add_model_config(folder)
    torch.manual_seed(1)
    state = open_clip.create_model(name, load_weights=False).state_dict()
    # texts that differ: weights are tiny where nothing trained them
    state = {key: value * (3.0 if key.endswith("weight") else 1.0) for key, value in state.items()}
    save_file({key: value.contiguous() for key, value in state.items()}, folder / "weights.safetensors")
    return f"open_clip:{name}", folder / "weights.safetensors"
