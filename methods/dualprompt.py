"""DualPrompt: prefix prompts shared by all tasks in the first blocks, and of each task in the blocks behind them.

Wang et al., "DualPrompt: Complementary Prompting for Rehearsal-free Continual Learning", ECCV 2022; NSP2 paper, Table 2. The algorithm and where
published code differs stand in `cl_bench.dual_prompting`, and LEFT_DIFFERENT there is what even `as_published` does otherwise.
"""

from cl_bench.dual_prompting import AS_PUBLISHED as DUAL_AS_PUBLISHED
from cl_bench.dual_prompting import DualConfig, DualPrompting

SUMMARY = "general prefix prompts, and expert ones chosen by key (ECCV 2022)"


class DualPrompt(DualPrompting):
    """Nothing but the common body."""

    display = "DualPrompt"
    TRUNK = DualConfig
    version = 2
    AS_PUBLISHED = DUAL_AS_PUBLISHED


METHOD = DualPrompt
