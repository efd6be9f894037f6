"""Several centroids per class, and how features vary around each: a class in less memory than a Gaussian."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from cl_bench import seeds

ROUNDS = 100  # of k-means at most


class ClassCentroids(nn.Module):
    """Means and variances (K, J, D) of J groups of each class's features, and their sizes (K, J); 0: none.

    A class with fewer features than J has as many groups as features.
    """

    def __init__(self, width: int, centroids: int, ridge: float, seed: int, device: torch.device):
        super().__init__()
        self.ridge, self.seed = ridge, seed  # added to every variance when drawing; of k-means
        self._places: dict[int, Tensor] = {}  # of all centroids of the first so many classes
        self.register_buffer("means", torch.zeros(0, centroids, width, device=device))
        self.register_buffer("variances", torch.zeros(0, centroids, width, device=device))
        self.register_buffer("sizes", torch.zeros(0, centroids, dtype=torch.long, device=device))

    def grow(self, classes: int) -> None:
        """Make room for so many more classes, of which nothing is known yet."""
        self._places = {}
        for name, value in list(self.named_buffers()):
            setattr(self, name, torch.cat([value, value.new_zeros(classes, *value.shape[1:])]))

    def describe(self, features: Tensor, labels: Tensor) -> None:
        """Take each class with features (n, D), all of them, as these describe it; labels (n,) are positions.

        A class without features keeps its own. Moments are computed in float64, variances are biased.
        """
        self._places = {}
        for label in labels.unique().tolist():
            own = features[labels == label].double()
            groups = k_means(own, self.means.shape[1], seeds.derived_seed(self.seed, "k-means", label))
            for value in (self.means, self.variances, self.sizes):
                value[label] = 0
            for group in range(int(groups.max()) + 1):
                members = own[groups == group]
                self.means[label, group] = members.mean(dim=0).float()
                self.variances[label, group] = members.var(dim=0, correction=0).float()
                self.sizes[label, group] = len(members)

    def centers(self, classes: int) -> Tensor:
        """All centroids of the first so many classes, (n, D)."""
        if classes not in self._places:  # looked for once, which a GPU is waited for
            self._places[classes] = self.sizes[:classes].flatten().nonzero()[:, 0]
        return self.means[:classes].flatten(0, 1)[self._places[classes]]

    def drawn(self) -> Tensor:
        """Which groups (K, J) are drawn: those that vary, and of classes without such all that there are."""
        varying, there = self.variances.any(dim=2), self.sizes > 0
        return torch.where(varying.any(dim=1, keepdim=True), varying, there)

    def draws(
        self, samples: int, batches: int, generator: torch.Generator
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of `samples` features (B, D) and their classes (B,): the first of a shuffled pass.

        A whole pass has `samples` of every group; only those that are used are made.
        """
        places, device = self.drawn().flatten().nonzero()[:, 0], self.means.device
        order = torch.randperm(len(places) * samples, generator=generator, device=device)
        used = places[order[: batches * samples] // samples]
        noise = torch.randn(len(used), self.means.shape[2], generator=generator, device=device)
        deviations = (self.variances.flatten(0, 1)[used] + self.ridge).sqrt()
        features = self.means.flatten(0, 1)[used] + deviations * noise
        yield from zip(features.split(samples), (used // self.means.shape[1]).split(samples), strict=True)


def k_means(features: Tensor, count: int, seed: int) -> Tensor:
    """Groups (n,), from 0 on and none of them empty, of features (n, D): Lloyd's, from a start by k-means++.

    There are fewer than `count` where fewer features differ. Arthur & Vassilvitskii, "k-means++: The
    Advantages of Careful Seeding", SODA 2007.
    """
    x, generator = features.double().cpu(), torch.Generator().manual_seed(seed)
    chosen = torch.randint(len(x), (1,), generator=generator)
    while len(chosen) < count:
        distances = torch.cdist(x, x[chosen]).amin(dim=1).square()
        if not distances.any():
            break
        chosen = torch.cat([chosen, torch.multinomial(distances, 1, generator=generator)])
    centers, before = x[chosen], None
    for _ in range(ROUNDS):
        groups = torch.cdist(x, centers).argmin(dim=1)
        if before is not None and torch.equal(groups, before):
            break
        one_hot, before = nn.functional.one_hot(groups, len(centers)).double(), groups  # (n, J)
        sizes = one_hot.sum(dim=0)[:, None]
        centers = torch.where(sizes > 0, one_hot.T @ x / sizes.clamp(min=1), centers)
    return groups.unique(return_inverse=True)[1].to(features.device)
