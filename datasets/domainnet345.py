"""DomainNet-345: all 345 classes, each with the images of all six domains.

There are 409,832 training and 176,743 test images of the cleaned DomainNet (Peng et al., "Moment Matching for
Multi-Source Domain Adaptation", ICCV 2019), by the authors' own lists, a pair for each domain. Public code of
class-incremental learning has it in five tasks of 69 classes. No digest of the lists is published: they are
known by their counts, and by what they were at their first use.
"""

from functools import partial

from cl_bench.datasets.domainnet200 import ARCHIVES_URL, DOMAINS, DomainNet200

from cl_bench.data.listed_files import Published, own_folder
from cl_bench.data.listed_images import ListedImages, nonempty_lines
from cl_bench.data.prepare_listed import prepare
from cl_bench.errors import InputError

SUMMARY = "DomainNet's 345 classes over all six domains; `cl-bench prepare domainnet345` first"
SIDES = ("train", "test")
LISTS_URL = f"{ARCHIVES_URL}/domainnet/txt"


class DomainNet345(ListedImages):
    """Files `<domain>/<class>/<name>`; the lists give each file's label."""

    name = "domainnet345"
    TRANSFORM = DomainNet200.TRANSFORM
    TEMPLATES = DomainNet200.TEMPLATES
    LISTS = {
        f"{domain}_{side}": Published(f"{LISTS_URL}/{domain}_{side}.txt")
        for domain in DOMAINS
        for side in SIDES
    }
    ARCHIVES = DomainNet200.ARCHIVES
    CLASSES = 345
    IMAGES = {"train": 409_832, "test": 176_743}

    @classmethod
    def split(cls, texts: dict[str, str]) -> dict[str, list[tuple[str, int]]]:
        """Lines are "<domain>/<class>/<file> <label>"; domain after domain. Raises InputError."""
        found = {}
        for side in SIDES:
            lines = [
                line.rpartition(" ") for key in DOMAINS for line in nonempty_lines(texts[f"{key}_{side}"])
            ]
            if not all(label.isdigit() and path.count("/") == 2 for path, _, label in lines):
                raise InputError(f"the {side} lists of domainnet345 are not what is expected; {_again(cls)}")
            found[side] = [(path, int(label)) for path, _, label in lines]
            labels = {label for _, label in found[side]}
            if len(found[side]) != cls.IMAGES[side] or labels != set(range(cls.CLASSES)):
                has = f"{len(found[side]):,} images of {len(labels)} classes"
                expected = f"expected {cls.IMAGES[side]:,} of {cls.CLASSES}"
                raise InputError(f"the {side} lists of domainnet345 name {has}, {expected}; {_again(cls)}")
        return found

    name_classes = DomainNet200.name_classes


def _again(kind: type[ListedImages]) -> str:
    return f"remove {own_folder(kind.name)}/*.txt and prepare again"


SOURCE = DomainNet345
PREPARE = partial(prepare, DomainNet345)
