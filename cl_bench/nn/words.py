"""A text encoder without a network: the vectors of a name's words, added up."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class WordTower(nn.Module):
    """A frozen vector for each word that it knows, and one for every name; features have E entries.

    Its file has `words`, the UTF-8 bytes of V lower-case words with spaces between, `vectors` (V, E), and
    `center` (E,), which is added to every name. Words that it does not know add nothing.
    """

    projection = None  # its features are in the space of the images' features

    def __init__(self, state: Mapping[str, Tensor]):
        super().__init__()
        for name in ("words", "vectors", "center"):
            self.register_buffer(name, state[name])
        known = bytes(state["words"].tolist()).decode().split()
        self._index = {word: row for row, word in enumerate(known)}
        self.length = len(state["center"])  # E

    def counts(self, texts: Sequence[str]) -> Tensor:
        """How often each word stands in each text (K, V)."""
        found = torch.zeros(len(texts), len(self._index), device=self.center.device)
        for row, text in enumerate(texts):
            for word in text.lower().split():
                if word in self._index:
                    found[row, self._index[word]] += 1
        return found

    def encode(self, names: Sequence[str], templates: Sequence[str]) -> Tensor:
        """Unit vectors (K, E) of classes: normalized means over templates of normalized sentence features."""
        sentences = [template.replace("{}", name) for name in names for template in templates]
        features = F.normalize(self.counts(sentences) @ self.vectors + self.center, dim=1)
        return F.normalize(features.unflatten(0, (len(names), len(templates))).mean(1), dim=1)

    def reads(self, sentence: str) -> bool:
        """True: a sentence may be as long as it likes."""
        return True
