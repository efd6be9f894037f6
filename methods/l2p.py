"""L2P: a pool of prompts, of which each image is given those whose keys are nearest to its query.

Wang et al., "Learning to Prompt for Continual Learning", CVPR 2022; NSP2 paper, Tables 2, 4 and 5. The algorithm, its two forms, and
where published code differs stand in `cl_bench.pool_tuning`, and LEFT_DIFFERENT there is what even `as_published` does otherwise.
Nothing acts against forgetting but the shared pool itself.
"""

from cl_bench.pool_tuning import AS_PUBLISHED as POOL_AS_PUBLISHED
from cl_bench.pool_tuning import PoolConfig, PoolTuning

SUMMARY = "prompts chosen from a pool by keys (L2P, CVPR 2022)"


class L2P(PoolTuning):
    """Nothing but the common body."""

    display = "L2P"
    TRUNK = PoolConfig
    version = 2
    AS_PUBLISHED = {**POOL_AS_PUBLISHED, "layers": 1, "carry": "accumulate", "head": "prompt", "position": "cls"}


METHOD = L2P
