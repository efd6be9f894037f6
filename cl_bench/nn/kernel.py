"""Functions that may be compiled: what a frozen block does to its tokens."""

import functools
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

import torch
from torch._dynamo.exc import TorchDynamoException

RARE = 1000  # calls: about 80 batches of a ViT-B
GRAPHS = 64  # of one function: with and without gradients, all tokens or one, and all forms of extra keys


class Kernel:
    """A function that runs as it is until `compile_all`; a decorator. Its second argument is a batch."""

    known: list["Kernel"] = []
    counting = True

    def __init__(self, plain: Callable):
        functools.update_wrapper(self, plain)
        self.plain = self.run = plain
        Kernel.known.append(self)

    def __call__(self, *arguments, **named):
        return self.run(*arguments, **named)

    def compile(self, say: Callable[[str], None], sizes: Collection[int], **settings) -> None:
        """Run compiled from now on; where that is impossible, plainly, which is said once.

        `settings` are those of torch.compile.
        """
        compiled, calls = torch.compile(self.plain, dynamic=False, **settings), Counter()

        def run(*arguments, **named):
            size = len(arguments[1])
            if size not in sizes and calls[size] < RARE:
                calls[size] += Kernel.counting
                return self.plain(*arguments, **named)
            try:
                return compiled(*arguments, **named)
            except TorchDynamoException as error:
                self.run = self.plain
                reason = " ".join(str(error).split())[:200]
                say(f"warning: torch.compile cannot be used here, the run goes on without it ({reason})")
                return self.plain(*arguments, **named)

        self.run = run


def compile_all(say: Callable[[str], None], sizes: Collection[int], **settings) -> None:
    """Compile every kernel at its first call with a batch of each of these sizes.

    One graph serves all blocks. Other batches, such as the last one of a pass, run plainly unless they turn
    out to be many: a graph for any size would be slower for all.
    """
    config = torch._dynamo.config
    now, before = "recompile_limit", "cache_size_limit"  # since torch 2.6, and until then
    setattr(config, now if hasattr(config, now) else before, GRAPHS)
    for kernel in Kernel.known:
        kernel.compile(say, sizes, **settings)


@contextmanager
def uncounted() -> Iterator[None]:
    """Calls within do not decide whether later batches run compiled: measuring changes nothing."""
    Kernel.counting = False
    try:
        yield
    finally:
        Kernel.counting = True


def plain_all() -> None:
    """Undo `compile_all`: every kernel runs as it is written."""
    for kernel in Kernel.known:
        kernel.run = kernel.plain
