"""What one training step and one statistics pass cost, as a ratio to the bare frozen network in the same process.

    python tests/benchmarks/bench_steps.py [--geometry glyphs|vit-s|vit-b] [--batch N] [--pairs N] [--threads N]

The bare step is timm's own forward and the backward to the tokens of a frozen ViT with as many extra keys: M more input tokens' worth of keys
and values per block, constants. The measured step has everything a run has: prompts, head, loss, Adam, and from the second task on
the projection.
"""

import argparse
import statistics
import time

import torch
from timm.models.vision_transformer import VisionTransformer
from torch.nn import functional as F

from cl_bench import registry
from cl_bench.backbone import Backbone
from cl_bench.config import BackboneSpec
from cl_bench.nn.prompts import merge_heads, queries_keys_values
from cl_bench.nn.statistics import AttentionMoments
from cl_bench.stream import StreamInfo

GEOMETRIES = {
    "glyphs": {"img_size": 24, "patch_size": 6, "embed_dim": 128, "depth": 6, "num_heads": 4},
    "vit-s": {"img_size": 224, "patch_size": 16, "embed_dim": 384, "depth": 12, "num_heads": 6},
    "vit-b": {"img_size": 224, "patch_size": 16, "embed_dim": 768, "depth": 12, "num_heads": 12},
}


class FakeTask:
    """A task of 20 classes; the measured steps get their images directly."""

    index, classes, first_label = 0, tuple(range(20)), 0


def ratio(measured, bare, pairs: int) -> tuple[float, float, float]:
    """(median ratio measured / bare, median seconds of each), taken in turn; the first pair is not counted."""
    times = []
    for _ in range(pairs + 1):
        row = []
        for run in (bare, measured):
            start = time.perf_counter()
            run()
            row.append(time.perf_counter() - start)
        times.append(row)
    times = times[1:]
    return statistics.median(m / b for b, m in times), statistics.median(m for _, m in times), statistics.median(b for b, _ in times)


def main() -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--geometry", choices=GEOMETRIES, default="glyphs")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    torch.manual_seed(0)
    size = GEOMETRIES[chosen.geometry]["img_size"]
    vit = VisionTransformer(**GEOMETRIES[chosen.geometry], num_classes=0)
    trunk = Backbone(vit, BackboneSpec(name="bench", image_size=size, mean=(0.5,) * 3, std=(0.5,) * 3), "")
    images, labels = torch.randn(chosen.batch, 3, size, size), torch.randint(0, 20, (chosen.batch,))
    extra = torch.randn(len(vit.blocks), 2, 1, vit.blocks[0].attn.num_heads, 4, vit.blocks[0].attn.head_dim)

    def with_constant_keys(index, block, x):
        attn, tokens = block.attn, block.norm1(x)
        q, k, v = queries_keys_values(attn, tokens)
        k = torch.cat([k, extra[index, 0].expand(len(k), -1, -1, -1)], 2)
        v = torch.cat([v, extra[index, 1].expand(len(v), -1, -1, -1)], 2)
        return merge_heads(attn, F.scaled_dot_product_attention(q, k, v), tokens)

    def bare_step():
        start = vit.patch_embed(images).requires_grad_()  # gradients of the tokens, through every block
        original, vit.patch_embed.forward = vit.patch_embed.forward, lambda _: start
        try:
            trunk.features(images, with_constant_keys).sum().backward()
        finally:
            vit.patch_embed.forward = original

    @torch.no_grad()
    def bare_forward():
        trunk.features(images, with_constant_keys)

    for name in ("vpt-seq", "vpt-nsp2"):
        kind = registry.method_class(name)
        method = kind(kind.Config(), trunk, StreamInfo(0, 2))
        method.grow(FakeTask)
        task = FakeTask()
        if name == "vpt-nsp2":
            task.index = 1
            method.B1[:], method.B2[:] = torch.eye(trunk.width), torch.eye(4)
        optimizer = method.make_optimizer(task)

        def step(method=method, optimizer=optimizer, task=task):
            loss = method.loss(images, labels, task)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()

        found, seconds, bare = ratio(step, bare_step, chosen.pairs)
        print(
            f"{chosen.geometry} {name}: training step {found:.3f} x bare ({1e3 * seconds:.1f} ms against {1e3 * bare:.1f} ms, batch {chosen.batch})"
        )

    moments = AttentionMoments(method.P, vit)

    @torch.no_grad()
    def statistics_pass():
        trunk.features(images, moments.observing(method.prompts))

    found, seconds, bare = ratio(statistics_pass, bare_forward, chosen.pairs)
    print(f"{chosen.geometry}: statistics pass {found:.3f} x forward ({1e3 * seconds:.1f} ms against {1e3 * bare:.1f} ms, batch {chosen.batch})")


if __name__ == "__main__":
    main()
