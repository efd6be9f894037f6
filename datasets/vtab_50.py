"""VTAB-50: 50 classes of five data sets of VTAB.

Images are of the Visual Task Adaptation Benchmark (Zhai et al. 2019); the classes and the split are those
that Aper (Zhou et al., IJCV 2024) drew and PILOT shares, as folders.
"""

from functools import partial

from cl_bench.data.class_folders import ClassFolders, prepare

ALIASES = ("vtab",)
SUMMARY = "VTAB's 50 classes in Aper's and PILOT's split: vtab-50:PATH with train/ and test/"


class VTAB50(ClassFolders):
    """Folders are classes of the five data sets."""

    name = "vtab-50"
    CLASSES = 50
    FOLDER = "vtab"


SOURCE = VTAB50
PREPARE = partial(prepare, VTAB50)
