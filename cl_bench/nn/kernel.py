"""Functions that may be compiled: what a frozen block does to its tokens."""

import functools
from collections.abc import Callable

import torch
from torch._dynamo.exc import TorchDynamoException

GRAPHS = 64  # of one function: with and without gradients, all tokens or one, and every form of a method's extra keys


class Kernel:
    """A function that runs as it is until `compile_all`; a decorator."""

    known: list["Kernel"] = []

    def __init__(self, plain: Callable):
        functools.update_wrapper(self, plain)
        self.plain = self.run = plain
        Kernel.known.append(self)

    def __call__(self, *arguments, **named):
        return self.run(*arguments, **named)

    def compile(self, say: Callable[[str], None], **settings) -> None:
        """Run compiled from now on; where that is impossible, plainly, which is said once. `settings` are those of torch.compile."""
        compiled = torch.compile(self.plain, **settings)

        def run(*arguments, **named):
            try:
                return compiled(*arguments, **named)
            except TorchDynamoException as error:
                self.run = self.plain
                say(f"warning: torch.compile cannot be used here, the run goes on without it ({' '.join(str(error).split())[:200]})")
                return self.plain(*arguments, **named)

        self.run = run


def compile_all(say: Callable[[str], None], **settings) -> None:
    """Compile every kernel at its first call: one graph serves all blocks, and all batch sizes from the second one on."""
    limit = "recompile_limit" if hasattr(torch._dynamo.config, "recompile_limit") else "cache_size_limit"  # its name before torch 2.6
    setattr(torch._dynamo.config, limit, GRAPHS)
    for kernel in Kernel.known:
        kernel.compile(say, **settings)


def plain_all() -> None:
    """As if nothing had been compiled."""
    for kernel in Kernel.known:
        kernel.run = kernel.plain
