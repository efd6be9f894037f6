"""What a method does inside the blocks of a frozen network: nothing where a subclass does not say it."""

from collections.abc import Callable

from timm.layers import Mlp
from timm.models.vision_transformer import Block
from torch import Tensor, nn

from cl_bench.errors import InputError
from cl_bench.nn.attention import attention_with
from cl_bench.nn.kernel import Kernel

Attend = Callable[[int, Block, Tensor, int | None], Tensor]
"""(block index, block, tokens (B, N, D) before norm1, read) -> attention output (B, read or N, D) of the
first `read` tokens (None: all), before layer scale and the residual sum."""


class Edits:
    """The identity. Subclasses override hooks; l is a block's index, from 0.

    An edit keeps no state of the batch it sees. Hooks of whole modules return what stands in the place of the
    network's own, so that low rank beside a weight, a scale behind it and a norm of one's own are the same
    thing to the network, and cost nothing where they are not used.
    """

    in_front = False  # whether `tokens` adds behind the first token, before patches, rather than at the end

    def patches(self, x: Tensor) -> Tensor:
        """What stands for the projected patches x (B, N, D), before class token and positions."""
        return x

    def tokens(self, l: int, x: Tensor) -> Tensor:
        """The tokens (B, N', D) that enter block l in the place of x (B, N, D)."""
        return x

    def keys_values(self, l: int, block: Block) -> tuple[Tensor, Tensor] | None:
        """Keys and values, each (H, M, d) for all images or (B, H, M, d), behind those of the tokens."""
        return None

    def norm(self, l: int, name: str, own: nn.Module) -> Callable[[Tensor], Tensor]:
        """What norms tokens: `own`, or another; `name` is norm1, norm2, or norm for the last (l = depth)."""
        return own

    def linear(self, l: int, name: str, own: nn.Module) -> Callable[[Tensor], Tensor]:
        """What stands for a linear map of the block: `own`, or another. `name` is qkv, proj, fc1 or fc2."""
        return own

    def beside_attention(self, l: int, h: Tensor) -> Tensor | None:
        """What is added to attention's output, given its normalized input h (B, N, D)."""
        return None

    def beside_mlp(self, l: int, x: Tensor) -> Tensor | None:
        """What is added to the MLP's output, given the tokens x (B, N, D) before its norm."""
        return None

    def attend(self, l: int, block: Block, x: Tensor, read: int | None = None) -> Tensor:
        """Attention of the first `read` (None: all) of tokens x (B, N, D), norm included; see `Attend`."""
        norm, extra = self.norm(l, "norm1", block.norm1), self.keys_values(l, block)
        qkv, proj = (self.linear(l, name, getattr(block.attn, name)) for name in ("qkv", "proj"))
        if not _overrides(self, "beside_attention"):
            return attention_with(block.attn, x, extra, read, norm, qkv, proj)
        h = norm(x)
        out = attention_with(block.attn, h, extra, read, None, qkv, proj)
        beside = self.beside_attention(l, h[:, :read])
        return out if beside is None else out + beside

    def feed_forward(self, l: int, block: Block, x: Tensor, attended: Tensor) -> Tensor:
        """What a block makes of its tokens (B, N, D) and their attention."""
        if not _overrides(self, "norm", "linear", "beside_mlp"):
            return feed_forward(block, x, attended)
        x = x + block.drop_path1(block.ls1(attended))
        mlp, norm = block.mlp, self.norm(l, "norm2", block.norm2)
        own = [getattr(mlp, name, None) for name in ("fc1", "fc2")]  # gated ones may have others
        fc1, fc2 = (self.linear(l, name, each) for name, each in zip(("fc1", "fc2"), own, strict=True))
        if fc1 is own[0] and fc2 is own[1]:
            mixed = mlp(norm(x))
        elif type(mlp) is Mlp:
            mixed = fc2(mlp.norm(mlp.act(fc1(norm(x)))))
        else:
            odd = f"the network's MLP is a {type(mlp).__name__}, whose parts no method here edits"
            raise InputError(f"{odd}; choose another backbone")
        out, beside = block.ls2(mixed), self.beside_mlp(l, x)
        return x + block.drop_path2(out if beside is None else out + beside)


class Watched(Edits):
    """Another's edits with an attention of its own, which may look at what passes."""

    def __init__(self, edits: Edits, attend: Attend):
        self._edits, self._attend, self.in_front = edits, attend, edits.in_front

    def patches(self, x: Tensor) -> Tensor:
        """The edits' own patches."""
        return self._edits.patches(x)

    def tokens(self, l: int, x: Tensor) -> Tensor:
        """The edits' own tokens: only attention is watched."""
        return self._edits.tokens(l, x)

    def attend(self, l: int, block: Block, x: Tensor, read: int | None = None) -> Tensor:
        """The given attention, in the place of the edits'."""
        return self._attend(l, block, x, read)

    def norm(self, l: int, name: str, own: nn.Module) -> Callable[[Tensor], Tensor]:
        """The edits' own norm."""
        return self._edits.norm(l, name, own)

    def feed_forward(self, l: int, block: Block, x: Tensor, attended: Tensor) -> Tensor:
        """The edits' own MLP and residual sums."""
        return self._edits.feed_forward(l, block, x, attended)


NONE = Edits()


def _overrides(edits: Edits, *hooks: str) -> bool:
    return any(getattr(type(edits), hook) is not getattr(Edits, hook) for hook in hooks)


@Kernel
def feed_forward(block: Block, x: Tensor, attended: Tensor) -> Tensor:
    """What a block makes of its tokens and their attention."""
    x = x + block.drop_path1(block.ls1(attended))
    return x + block.drop_path2(block.ls2(block.mlp(block.norm2(x))))
