"""ImageNet-A: 200 ImageNet classes in natural images that networks of its time got wrong.

Hendrycks et al., "Natural Adversarial Examples", CVPR 2021, who publish no split; this is the one that Aper
(Zhou et al., IJCV 2024) made and PILOT shares, as folders. Class folders are WordNet ids; what classes are
called can be given with `imagenet-a:PATH?names=FILE`.
"""

from functools import partial

from cl_bench.data.class_folders import ClassFolders, prepare

SUMMARY = "ImageNet-A in Aper's and PILOT's split: imagenet-a:PATH with train/ and test/"


class ImageNetA(ClassFolders):
    """Folders are WordNet ids."""

    name = "imagenet-a"
    CLASSES = 200
    FOLDER = "imagenet-a"


SOURCE = ImageNetA
PREPARE = partial(prepare, ImageNetA)
