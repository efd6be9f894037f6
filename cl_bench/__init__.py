"""cl-bench: one command compares continual-learning methods on frozen, pre-trained vision transformers."""

from pathlib import Path

__version__ = "0.1.0"

# In a checkout, `methods/` and `datasets/` lie beside this package; on this path they are cl_bench.methods and cl_bench.datasets
# without ever becoming top-level import names (Hugging Face's `datasets` stays importable).
_checkout = Path(__file__).resolve().parent.parent
if (_checkout / "methods").is_dir() and (_checkout / "pyproject.toml").is_file():
    __path__.append(str(_checkout))
