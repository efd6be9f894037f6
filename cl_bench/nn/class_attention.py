"""A learned token that attends to an image's tokens (CaiT: Touvron et al., ICCV 2021)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

EPSILON = 1e-5  # of its LayerNorms


class ClassAttention(nn.Module):
    r"""\[ a = \tau + W_o attention(norm_1 \tau, norm_1 [\tau; Z]), \qquad out = a + MLP(norm_2 a). \]

    The token tau (D,) alone asks. Its query is therefore the same for all images and is multiplied with the
    key weights first, and the value weights come behind the weighted sum of tokens: an image costs H products
    with its tokens in the place of D. Keys have no bias, which softmax would not see. Weights start normal
    with std 0.02, biases at zero.
    """

    def __init__(self, token: Tensor, heads: int, hidden: int, generator: torch.Generator):
        super().__init__()
        width, self.heads = len(token), heads
        self.token = nn.Parameter(token.detach().clone())
        self.norm1, self.norm2 = (nn.LayerNorm(width, eps=EPSILON, device=token.device) for _ in range(2))
        self.q, self.v, self.proj = (_linear(width, width, generator, token.device) for _ in range(3))
        self.k = _linear(width, width, generator, token.device, bias=False)
        self.fc1 = _linear(width, hidden, generator, token.device)
        self.fc2 = _linear(hidden, width, generator, token.device)

    def forward(self, Z: Tensor) -> Tensor:
        """The token (B, D) after it saw tokens Z (B, N, D) as `normalized` makes them."""
        gamma, beta, H = self.norm1.weight, self.norm1.bias, self.heads
        own = normalized(self.token)  # (D,)
        q = self.q(gamma * own + beta).unflatten(0, (H, 1, -1))  # (H, 1, d)
        asked = gamma * (q @ self.k.weight.unflatten(0, (H, -1))).flatten(1)  # (H, D); beta adds a constant
        scores = torch.cat([(asked @ own).expand(len(Z), 1, -1), Z @ asked.T], dim=1)  # (B, 1 + N, H)
        weights = (scores * q.shape[-1] ** -0.5).softmax(dim=1).transpose(1, 2)  # (B, H, 1 + N)
        seen = weights[..., :1] * own + weights[..., 1:] @ Z  # (B, H, D)
        values = torch.einsum("bhe,hde->bhd", gamma * seen + beta, self.v.weight.unflatten(0, (H, -1)))
        a = self.token + self.proj(values.flatten(1) + self.v.bias)  # (B, D)
        return a + self.fc2(F.gelu(self.fc1(self.norm2(a))))

    def products(self, tokens: int) -> float:
        """Multiply-adds of an image of so many tokens."""
        D, hidden = len(self.token), self.fc1.out_features
        return 2.0 * tokens * D * self.heads + 2.0 * D * D + 2.0 * D * hidden


def normalized(tokens: Tensor) -> Tensor:
    """Tokens (..., D) of mean 0 and variance 1, in full precision: LayerNorm before its scale and shift."""
    return F.layer_norm(tokens.float(), tokens.shape[-1:], eps=EPSILON)


def _linear(
    inputs: int, outputs: int, generator: torch.Generator, device: torch.device, bias: bool = True
) -> nn.Linear:
    made = nn.utils.skip_init(nn.Linear, inputs, outputs, bias)
    nn.init.trunc_normal_(made.weight, std=0.02, generator=generator)
    if bias:
        nn.init.zeros_(made.bias)
    return made.to(device)
