"""How much a run computes besides the frozen network's own passes, roughly.

It counts multiply-adds of attention and MLP with the method's keys and tokens. Planning compares methods and
settings on one network with it. It knows nothing of kernels and memory bandwidth: seconds come from what was
measured, and are scaled by the work that a setting has more or less of.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

EIGEN = 10  # multiply-adds of a decomposition of an n x n matrix, in n^3
PLAN = 2  # what an exact transport plan between n points and n takes as long as, in n^3 multiply-adds


@dataclass(frozen=True)
class Extra:
    """What a method adds to the frozen network's own work on an image.

    Numbers without a block are multiply-adds, or bytes.
    """

    # block -> keys and values that an image's tokens attend to besides themselves
    keys: Mapping[int, int] = field(default_factory=dict)
    tokens: Mapping[int, int] = field(default_factory=dict)  # block -> tokens that join the image's and stay
    all_tokens: bool = False  # whether the last block computes all of them, not only what makes the feature
    image: float = 0.0  # for each image: choosing and mixing prompts
    step: float = 0.0  # for each batch that is trained on: projecting prompts and updates
    statistics: float = 0.0  # for each image of the statistics after a task, besides its pass
    task: float = 0.0  # after each task: decompositions, refinement
    working_bytes: float = 0.0  # while learning, besides the state and activations


def of_pool(P: torch.Tensor, pool: int, chosen: int, carried: bool) -> Extra:
    """Choosing prompts of a pool P (L, S * m, D) for an image, as keys or as tokens that are `carried`.

    As keys the whole pool is projected once a step.
    """
    (layers, rows, D), each = P.shape, chosen * P.shape[1] // pool
    added, choice = dict.fromkeys(range(layers), each), float(pool) * D
    mixing = float(layers) * chosen * rows * D
    if carried:
        return Extra(tokens=added, image=choice + mixing)
    return Extra(keys=added, image=choice + 2.0 * mixing, step=2.0 * layers * rows * D * D)


def of_components(layers: int, components: int, length: int, width: int) -> Extra:
    """Prefixes of `length` / 2 keys and values in so many blocks, each a weighted sum of components."""
    weighing, mixing = 2.0, float(length)
    image = layers * float(components) * width * (weighing + mixing)
    return Extra(keys=dict.fromkeys(range(layers), length // 2), image=image)


def of_prompt_experts(P: torch.Tensor) -> Extra:
    """Keys and values mixed for each image from experts' prompts P (L, E, M, D), and projected.

    Besides, moments of what routes them, their null spaces, and updates projected onto these.
    """
    layers, E, M, D = map(float, P.shape)
    return Extra(
        keys=dict.fromkeys(range(len(P)), P.shape[2]),
        image=layers * D * (E + E * M + 2 * M * D),
        step=layers * E * D * (D + E * M),
        statistics=layers * (D * D + E * E),
        task=EIGEN * layers * (D**3 + E**3),
        working_bytes=8 * layers * (D * D + E * E),
    )


def of_memory(V: torch.Tensor, U: torch.Tensor) -> Extra:
    """Prompts U relu(V q) that join an image's tokens and stay, and plans between outputs after a task.

    V is (L, h, D), U (L, m D, h).
    """
    (layers, h, D), outputs = map(float, V.shape), float(U.shape[1])
    return Extra(
        tokens=dict.fromkeys(range(len(V)), U.shape[1] // V.shape[2]),
        image=layers * h * (D + outputs),
        task=PLAN * layers * outputs**3,
        working_bytes=3 * 8 * outputs**2,
    )


def of_ridge(image: float, length: int) -> Extra:
    """Features of so many entries that take `image` multiply-adds, their moments, and their equations."""
    M = float(length)
    return Extra(image=image, statistics=M * M, task=M**3 / 3, working_bytes=16 * M * M)


def of_successive_lora(A: torch.Tensor, vit: torch.nn.Module) -> Extra:
    """Updates of keys and values through A (L, r, D), moments of the inputs, and two decompositions of them.

    Updates of queries are zero, but multiplied.
    """
    layers, rank, D = map(float, A.shape)
    rows = layers * tokens(vit) * D
    return Extra(
        image=4 * rank * rows,
        statistics=rows * D,
        task=2 * EIGEN * layers * D**3,
        working_bytes=16 * layers * D * D,
    )


def of_prompt_generator(generator: torch.nn.Module, head: torch.nn.Module, block: int, pairs: float) -> Extra:
    """One generated prompt that joins the tokens at a block, the proxies, and so many refined pairs a task.

    A pair takes a matrix of its two Gaussians each, and both networks forward and backward.
    """
    maps = sum(module.weight.numel() for module in generator.modules() if isinstance(module, torch.nn.Linear))
    pool, D = sum(tokens.numel() for tokens in generator.tokens), head.weight.shape[1]
    image = float(maps + 2 * pool + head.weight.numel())
    step = 2.0 * pool * D  # keys and values of the pool
    return Extra(tokens={block: 1}, image=image, step=step, task=pairs * (3 * image + 2 * D * D))


def with_refinement(found: Extra, outputs: int, width: int, passes: int, features: int) -> Extra:
    """With passes over features drawn from Gaussians, on which so many linear outputs are trained.

    That is after every task.
    """
    E, D, drawn = float(outputs), float(width), float(features)
    return replace(found, task=passes * drawn * D * (D / 2 + 3 * E), working_bytes=4 * drawn * D)


def with_masked_maps(found: Extra, maps: Sequence[torch.Tensor], vit: torch.nn.Module, batch: int) -> Extra:
    """With gradients of attention's input maps (3 D', D) of all blocks, and others through masked rows."""
    N = float(tokens(vit))
    image = sum(2 * N * W.numel() + N * N * W.shape[0] for W in maps)
    return replace(found, step=found.step + batch * image)


def with_null_spaces(
    found: Extra, P: torch.Tensor, vit: torch.nn.Module, b1: bool, b2: bool, blocks: int
) -> Extra:
    """With both projections of updates of prompts P (L, M, D), their attention's moments, and null spaces.

    B_2 has so many diagonal blocks.
    """
    layers, M, D = map(float, P.shape)
    rows = vit.blocks[0].attn.num_heads * (vit.patch_embed.num_patches + vit.num_prefix_tokens)
    return replace(
        found,
        step=found.step + layers * (b1 * M * D * D + b2 * M * M * D),
        statistics=found.statistics + layers * rows * (b1 or b2) * M * M,
        task=found.task + b2 * EIGEN * layers * M**3 / blocks**2,
        working_bytes=found.working_bytes + 8 * layers * M * M,
    )


@dataclass(frozen=True)
class Work:
    """Multiply-adds of an image's pass through the bare network and under prompts, and those of learning."""

    bare: float
    image: float
    extra: Extra
    batch: int

    @property
    def learning(self) -> float:
        """A pass of training, forward and backward, in passes through the bare network."""
        return (self.image + self.extra.step / self.batch / 2) / self.bare

    @property
    def predicting(self) -> float:
        """A pass of prediction, in passes through the bare network."""
        return self.image / self.bare

    def of_learning(self, images: int, statistics: int, tasks: int) -> float:
        """Learning so many tasks with so many image passes, in passes through the bare network.

        Some of the image passes are for statistics.
        """
        added = statistics * self.extra.statistics + tasks * self.extra.task
        return images * self.learning + added / self.bare


def tokens(vit: torch.nn.Module) -> int:
    """How many tokens an image becomes, its class token among them."""
    return vit.patch_embed.num_patches + vit.num_prefix_tokens


def through(vit: torch.nn.Module, module: torch.nn.Module) -> float:
    """Multiply-adds of an image all of whose tokens pass every matrix of a module, in the last block too."""
    return float(tokens(vit)) * sum(parameter.numel() for parameter in module.parameters())


def through_first_blocks(vit: torch.nn.Module, count: int) -> float:
    """Multiply-adds of an image that passes the first blocks, all of its tokens."""
    N, D, total = float(tokens(vit)), vit.embed_dim, 0.0
    for block in vit.blocks[:count]:
        inner = block.attn.proj.in_features
        total += N * (4.0 * D * inner + _of_mlp(block) + 2.0 * N * inner)
    return total


def _of_mlp(block: torch.nn.Module) -> float:
    """Multiply-adds of a token in a block's MLP, however many maps it has."""
    return float(sum(weight.numel() for weight in block.mlp.parameters() if weight.ndim == 2))


def of(method: torch.nn.Module, images: int) -> Work:
    """The work of a method that learns tasks of about so many images."""
    extra, vit = method.extra(), method.backbone.vit
    batch = max(1, min(images, getattr(method.config, "batch", 1)))
    read = method.backbone.read
    own = _network(vit, extra, None if extra.all_tokens else read)
    return Work(_network(vit, Extra(), read), own + extra.image, extra, batch)


def _network(vit: torch.nn.Module, extra: Extra, read: int | None) -> float:
    """Multiply-adds of one image's forward pass; the last block computes `read` tokens alone (None: all)."""
    count, total = tokens(vit), float(vit.patch_embed.num_patches * vit.patch_embed.proj.weight.numel())
    for index, block in enumerate(vit.blocks):
        count += extra.tokens.get(index, 0)
        asking = count if read is None or index < len(vit.blocks) - 1 else read
        D, inner = vit.embed_dim, block.attn.proj.in_features
        total += 2.0 * count * D * inner  # keys and values
        total += asking * (2.0 * D * inner + _of_mlp(block))  # queries, output and MLP
        total += 2.0 * asking * (count + extra.keys.get(index, 0)) * inner
    return total


def memory_bytes(method: torch.nn.Module, images: int) -> float:
    """What learning takes at least besides the network.

    State, gradients, Adam's two moments, and the attention of a batch on added keys.
    """
    extra, vit = method.extra(), method.backbone.vit
    state = sum(_bytes(value) for value in method.state().values())
    trained = sum(_bytes(parameter) for parameter in method.parameters() if parameter.requires_grad)
    batch = min(images, getattr(method.config, "batch", 1))
    attention = _attention_bytes(vit, extra) - _attention_bytes(vit, Extra())
    return state + 3 * trained + batch * attention + extra.working_bytes


def _attention_bytes(vit: torch.nn.Module, extra: Extra) -> float:
    """An image's keys, values and attention maps in all blocks, fp32."""
    count, total = tokens(vit), 0.0
    for index, block in enumerate(vit.blocks):
        count += extra.tokens.get(index, 0)
        keys = count + extra.keys.get(index, 0)
        total += 4.0 * keys * (block.attn.num_heads * count + 2 * block.attn.proj.in_features)
    return total


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
