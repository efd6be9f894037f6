"""OmniBenchmark-300: 300 classes of many realms, 89,697 training and 5,985 test images.

Images are of OmniBenchmark (Zhang et al., ECCV 2022); the classes and the split are those that Aper (Zhou et
al., IJCV 2024) drew and PILOT shares, as folders.
"""

from functools import partial

from cl_bench.data.class_folders import ClassFolders, prepare

ALIASES = ("omnibenchmark",)
SUMMARY = "OmniBenchmark's 300 classes in Aper's and PILOT's split: omnibenchmark-300:PATH"


class OmniBenchmark300(ClassFolders):
    """Folders are concepts."""

    name = "omnibenchmark-300"
    CLASSES = 300
    IMAGES = (89697, 5985)
    FOLDER = "omnibenchmark"


SOURCE = OmniBenchmark300
PREPARE = partial(prepare, OmniBenchmark300)
