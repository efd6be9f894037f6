"""DomainNet-200: the 200 classes of the class-incremental DomainNet of ESN, CPrompt and NSP2.

There are 47,532 training and 20,450 test images. Images are those of the cleaned DomainNet (Peng et al.,
"Moment Matching for Multi-Source Domain Adaptation", ICCV 2019). In the published split list every class
comes from exactly one domain (real, sketch, quickdraw and painting 40 classes each, clipart and infograph
20), with 9 to 586 training images a class. The paper describes it as the 200 classes with the most images; by
the list a class also tells the domain.
"""

from functools import partial

from cl_bench.data.listed_files import Archive, Published
from cl_bench.data.listed_images import ListedImages, nonempty_lines
from cl_bench.data.prepare_listed import prepare

SUMMARY = (
    "DomainNet's 200 class-and-domain pairs of ESN, CPrompt and NSP2; `cl-bench prepare domainnet200` first"
)
ASKS = {
    "domainnet": "three data sets of continual learning bear this name: domainnet200 (200 classes, one "
    "domain each; ESN, CPrompt, NSP2), domainnet345 (the 345 classes over all six domains; CODA-Prompt, "
    "LAE), and the six domains learned one after the other with the same classes, which cl-bench has not"
}
COMMIT = "0d9c5475e2be2487fa20be2bc7b51379ab68b893"
LISTS_URL = f"https://raw.githubusercontent.com/zugexiaodui/VPTinNSforCL/{COMMIT}/tools"
ARCHIVES_URL = "http://csr.bu.edu/ftp/visda/2019/multi-source"
DOMAINS = {
    "clipart": "groundtruth/",
    "infograph": "",
    "painting": "groundtruth/",
    "quickdraw": "",
    "real": "",
    "sketch": "",
}


class DomainNet200(ListedImages):
    """Files `<domain>/<class>/<name>`; the list gives each file's label."""

    name = "domainnet200"
    SIZES = (200, 47_532, 20_450)
    TRANSFORM = {
        "augment": "autoaugment-imagenet",
        "crop_interpolation": "bilinear",
        "resize": "squash-crop",
        "interpolation": "bilinear",
    }
    TEMPLATES = tuple(
        f"a {domain} of {article} {{}}"
        for domain in ("clipart", "infograph", "painting", "quickdraw", "real photo", "sketch")
        for article in ("a", "the")
    )
    LISTS = {
        "train": Published(
            f"{LISTS_URL}/sdomain_train.txt",
            "87671cd9a6309dc5e9ebfa8eab8c14abbc270d605c9430c7525ff8e9d7e7e74e",
        ),
        "test": Published(
            f"{LISTS_URL}/sdomain_val.txt", "112d39337e19ea1b5b81f1a423145be007c5a42e16aeea84473a98c28462a8d2"
        ),
    }
    # no digest is published
    ARCHIVES = tuple(
        Archive(f"{ARCHIVES_URL}/{place}{domain}.zip", domain) for domain, place in DOMAINS.items()
    )

    @classmethod
    def split(cls, texts: dict[str, str]) -> dict[str, list[tuple[str, int]]]:
        """Lines are "<domain>/<class>/<file> <label>"."""
        found = {}
        for side in ("train", "test"):
            lines = (line.rpartition(" ") for line in nonempty_lines(texts[side]))
            found[side] = [(path, int(label)) for path, _, label in lines]
        return found

    def name_classes(self, texts: dict[str, str]) -> list[str]:
        """The folder names of the classes."""
        folders = {label: path.split("/")[1] for path, label in self.split(texts)["train"]}
        return [folders[label] for label in sorted(folders)]


SOURCE = DomainNet200
PREPARE = partial(prepare, DomainNet200)
