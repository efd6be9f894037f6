"""CUB-200: 200 species of birds (Wah et al. 2011), 9,430 training and 2,358 test images.

The split is not the authors' own but the one that Aper (Zhou et al., IJCV 2024) made and PILOT shares, as
folders, with four fifths of the 11,788 images to train on.
"""

import re
from functools import partial

from cl_bench.data.class_folders import ClassFolders, prepare

ALIASES = ("cub",)
SUMMARY = "CUB-200 in Aper's and PILOT's split: cub-200:PATH with train/ and test/"


class CUB200(ClassFolders):
    """Folders are numbered species."""

    name = "cub-200"
    CLASSES = 200
    IMAGES = (9430, 2358)
    FOLDER = "cub"

    def text_names(self) -> list[str]:
        """Without the numbers that folders begin with: "001.Black_footed_Albatross"."""
        return [re.sub(r"^\d+\.", "", name) for name in super().text_names()]


SOURCE = CUB200
PREPARE = partial(prepare, CUB200)
