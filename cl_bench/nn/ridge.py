"""Ridge regression of features onto classes from accumulated moments, the same for any order of the data."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

STRENGTHS = tuple(10.0**exponent for exponent in range(-8, 9))


class Ridge(nn.Module):
    """G = sum of phi phi' (M, M) and Q = sum of phi y' (M, K) over all images, y one-hot, float64.

    W (M, K) = (G + lambda I)^-1 Q.
    """

    def __init__(self, length: int, device: torch.device):
        super().__init__()
        self.register_buffer("G", torch.zeros(length, length, dtype=torch.float64, device=device))
        self.register_buffer("Q", torch.zeros(length, 0, dtype=torch.float64, device=device))
        self.register_buffer("W", torch.zeros(length, 0, device=device))

    def grow(self, classes: int) -> None:
        """Make room for so many more classes."""
        room = self.Q.new_zeros(len(self.Q), classes)
        self.Q = torch.cat([self.Q, room], dim=1)
        self.W = torch.cat([self.W, room.to(self.W)], dim=1)

    def add(self, phi: Tensor, labels: Tensor) -> None:
        """Features phi (B, M) of images of classes (B,), as positions."""
        phi = phi.double()
        self.G += phi.T @ phi
        self.Q += phi.T @ F.one_hot(labels, self.Q.shape[1]).double()

    def solve(self, strength: float) -> None:
        """Set W for lambda = `strength`."""
        G = self.G.clone()
        G.diagonal().add_(strength)
        factor, failed = torch.linalg.cholesky_ex(G)
        if failed:  # lambda is below the rounding of G, whose small eigenvalues may be negative
            values, vectors = torch.linalg.eigh(self.G)
            W = vectors @ ((vectors.T @ self.Q) / (values.clamp(min=0) + strength)[:, None])
        else:
            W = torch.cholesky_solve(self.Q, factor)
        self.W = W.float().contiguous()  # as it comes back from a checkpoint, to the last bit of its products

    def forward(self, phi: Tensor) -> Tensor:
        """Scores phi W (B, K)."""
        return phi @ self.W


def choose_strength(phi: Tensor, labels: Tensor, classes: int, fitted: int) -> tuple[float, list[float]]:
    """The lambda of STRENGTHS with the least mean squared error on held-out rows, and all errors.

    Fitted are the first `fitted` rows of phi (n, M), held out the others. One decomposition in float64 serves
    all lambdas: of the smaller of phi phi' and phi' phi.
    """
    Y = F.one_hot(labels, classes).double()
    X, held = phi[:fitted].double(), phi[fitted:].double()
    if len(X) <= X.shape[1]:  # held X' (X X' + lambda)^-1 Y
        values, vectors = torch.linalg.eigh(X @ X.T)
        left, right = held @ X.T @ vectors, vectors.T @ Y[:fitted]
    else:  # held (X' X + lambda)^-1 X' Y
        values, vectors = torch.linalg.eigh(X.T @ X)
        left, right = held @ vectors, vectors.T @ (X.T @ Y[:fitted])
    values = values.clamp(min=0)
    residuals = (left / (values + strength) @ right - Y[fitted:] for strength in STRENGTHS)
    errors = [float(residual.square().mean()) for residual in residuals]
    return STRENGTHS[min(range(len(errors)), key=errors.__getitem__)], errors
