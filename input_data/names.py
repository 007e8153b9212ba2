"""The names that `--dataset` takes, and the module of each data set.

A new data set is one line here, its file and its test.
"""

# The module of each, which has a `DataSet` named DATA_SET.
MODULES = {
    "affnist": "input_data.datasets.affnist",
    "cifar10": "input_data.datasets.cifar10",
    "digits": "input_data.datasets.digits",
    "images": "input_data.datasets.image_folder",
    "mnist": "input_data.datasets.mnist",
    "norb": "input_data.datasets.norb",
    "svhn": "input_data.datasets.svhn",
}
# That which comes with the project: it needs no --data_dir.
EMBEDDED = "digits"
# tfds:NAME is the set of that name in TensorFlow Datasets.
TFDS_PREFIX = "tfds:"
TFDS_MODULE = "input_data.datasets.tfds_images"


def is_valid_name(name):
    """Whether a data set has this name; TFDS's names are not looked up."""
    return name in MODULES or (
        name.startswith(TFDS_PREFIX) and name != TFDS_PREFIX
    )


def valid_names():
    """All names, for a message."""
    return f"{', '.join(sorted(MODULES))}, {TFDS_PREFIX}NAME"
