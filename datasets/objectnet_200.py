"""ObjectNet-200: 200 classes of objects in odd places and poses.

Images are of ObjectNet (Barbu et al., NeurIPS 2019); the classes and the split are those that Aper (Zhou et
al., IJCV 2024) drew and PILOT shares, as folders.
"""

from functools import partial

from cl_bench.data.class_folders import ClassFolders, prepare

ALIASES = ("objectnet",)
SUMMARY = "ObjectNet's 200 classes in Aper's and PILOT's split: objectnet-200:PATH with train/ and test/"


class ObjectNet200(ClassFolders):
    """Folders are objects."""

    name = "objectnet-200"
    CLASSES = 200
    FOLDER = "objectnet"


SOURCE = ObjectNet200
PREPARE = partial(prepare, ObjectNet200)
