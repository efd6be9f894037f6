"""ImageNet-R: 200 ImageNet classes as art, cartoons, sculptures and other renditions.

There are 24,000 training and 6,000 test images. Hendrycks et al., "The Many Faces of Robustness", ICCV 2021.
The authors publish no split; this is the fixed list of the NSP2 paper's published code. Classes are in the
order of their WordNet ids, with 38 to 354 training images each.
"""

from functools import partial

from cl_bench.data.listed_files import Archive, Published
from cl_bench.data.listed_images import ListedImages, nonempty_lines
from cl_bench.data.prepare_listed import prepare

SUMMARY = "ImageNet-R with the NSP2 paper's split; `cl-bench prepare imagenet-r` first"
COMMIT = "0d9c5475e2be2487fa20be2bc7b51379ab68b893"
LISTS_URL = f"https://raw.githubusercontent.com/zugexiaodui/VPTinNSforCL/{COMMIT}/tools"
FOLDER = "imagenet-r"

# class names for text towers that are not the data set's own: those of OpenAI's list of ImageNet names, as
# the published code has them
NAMES = {
    "hammerhead": "hammerhead shark", "newt": "smooth newt", "iguana": "green iguana",
    "African_chameleon": "chameleon", "cobra": "Indian cobra", "peacock": "peafowl",
    "lobster": "American lobster", "american_egret": "great egret", "chihuahua": "Chihuahua",
    "shih_tzu": "Shih Tzu", "afghan_hound": "Afghan Hound", "basset_hound": "Basset Hound",
    "beagle": "Beagle", "bloodhound": "Bloodhound", "italian_greyhound": "Italian Greyhound",
    "whippet": "Whippet", "weimaraner": "Weimaraner", "yorkshire_terrier": "Yorkshire Terrier",
    "boston_terrier": "Boston Terrier", "scottish_terrier": "Scottish Terrier",
    "west_highland_white_terrier": "West Highland White Terrier", "golden_retriever": "Golden Retriever",
    "labrador_retriever": "Labrador Retriever", "cocker_spaniels": "Cocker Spaniel",
    "border_collie": "Border Collie", "rottweiler": "Rottweiler",
    "german_shepherd_dog": "German Shepherd Dog", "boxer": "Boxer", "french_bulldog": "French Bulldog",
    "saint_bernard": "St. Bernard", "husky": "Siberian Husky", "dalmatian": "Dalmatian",
    "pomeranian": "Pomeranian", "chow_chow": "Chow Chow", "pembroke_welsh_corgi": "Pembroke Welsh Corgi",
    "toy_poodle": "Toy Poodle", "standard_poodle": "Standard Poodle", "timber_wolf": "grey wolf",
    "mantis": "praying mantis", "wood_rabbit": "cottontail rabbit", "panda": "giant panda",
    "clown_fish": "clownfish", "puffer_fish": "pufferfish", "fire_engine": "fire truck",
    "gasmask": "gas mask or respirator", "hotdog": "hot dog", "Granny_Smith": "Granny Smith apple",
}  # fmt: skip


class ImageNetR(ListedImages):
    """Files `imagenet-r/<wnid>/<name>.jpg`; the class of a file is its folder."""

    name = "imagenet-r"
    SIZES = (200, 24_000, 6_000)
    TRANSFORM = {
        "augment": "autoaugment-imagenet",
        "crop_interpolation": "bilinear",
        "resize": "squash-crop",
        "interpolation": "bilinear",
    }
    TEMPLATES = (
        "itap of a {}.", "a bad photo of the {}.", "a origami {}.", "a photo of the large {}.",
        "a {} in a video game.", "art of the {}.", "a photo of the small {}.",
    )  # fmt: skip
    LISTS = {
        "train": Published(
            f"{LISTS_URL}/imagenet_r_train.txt",
            "bd1536ce73d52328d697d983652ce02eb10c5c9fc085d4b2434c67c32b81ee2c",
        ),
        "test": Published(
            f"{LISTS_URL}/imagenet_r_val.txt",
            "c6719b71b1181cba536a16d77a3815295eaf3b9c844f5db4452b9bb6dac85d2f",
        ),
        "names": Published(
            f"{LISTS_URL}/imagenet_r_classnames.txt",
            "1ba7a57a67681bc6b099dc4acce3af260426d5e73ed399bec08dc02c4b635d59",
        ),
    }
    ARCHIVES = (
        Archive(
            "https://people.eecs.berkeley.edu/~hendrycks/imagenet-r.tar",
            FOLDER,
            "md5:a61312130a589d0ca1a8fca1f2bd3337",
        ),
    )

    @classmethod
    def split(cls, texts: dict[str, str]) -> dict[str, list[tuple[str, int]]]:
        """Lines are "<wnid>/<file>"; labels count the wnids in alphabetical order."""
        wnids = sorted(line.split()[0] for line in nonempty_lines(texts["names"]))
        labels = {wnid: label for label, wnid in enumerate(wnids)}
        found = {}
        for side in ("train", "test"):
            lines = nonempty_lines(texts[side])
            found[side] = [(f"{FOLDER}/{line}", labels[line.partition("/")[0]]) for line in lines]
        return found

    def name_classes(self, texts: dict[str, str]) -> list[str]:
        """The data set's own names, in the order of their WordNet ids."""
        return [line.partition(" ")[2] for line in sorted(nonempty_lines(texts["names"]))]

    def text_names(self) -> list[str]:
        """The published code's names."""
        return [NAMES.get(name, name.replace("_", " ")) for name in self.class_names]


SOURCE = ImageNetR
PREPARE = partial(prepare, ImageNetR)
