"""Classifies image files with a trained network, or exports the network.

python predict.py seven.png  # by the pretrained network for MNIST
python predict.py --checkpoint=/tmp/mnist/train/model.ckpt-1000 seven.png
python predict.py --checkpoint=... --format=json folder > lengths.jsonl
python predict.py --checkpoint=... --invert - < scan.jpg
python predict.py --checkpoint=... --export=/tmp/mnist.keras
"""

import functools
import os
import pathlib
import sys

import numpy as np
from absl import flags as absl_flags
from tqdm import tqdm

import resolve
from common import flags, load_backend
from common.errors import UserError, printable, user_errors
from common.files import atomic_write, to_json
from config import EVAL_BATCH_SIZE, Config
from input_data import keys
from input_data.files import POOL, list_images


def list_files(arguments):
    """The given files; of given folders, all images except hidden ones."""
    files = []
    for argument in arguments:
        is_folder = os.path.isdir(argument)
        images, others = list_images(argument) if is_folder else ([], "")
        if others:
            print(f"predict.py: {argument}: ignored {others}", file=sys.stderr)
        files += images or [argument]  # reading it reports the reason
    return files


def predict_files(files, network, prepare, num_targets, unreadable):
    """Predicts files a batch at a time; reports and skips unreadable ones.

    The file "-" is standard input. `prepare(content, name)` turns a file into
    an image. The names of unreadable files are added to the list `unreadable`.
    Yields (file, list of the predicted classes, logits [classes]).
    """

    def read(file):
        try:
            with user_errors(file):
                if file == "-":
                    content = sys.stdin.buffer.read()
                else:
                    content = pathlib.Path(file).read_bytes()
            return file, prepare(content, file)
        except UserError as error:
            return file, error

    starts = range(0, len(files), EVAL_BATCH_SIZE)
    bar = tqdm(starts, unit="batch", disable=len(starts) <= 1, mininterval=1)
    for start in bar:
        names, images = [], []
        batch = files[start : start + EVAL_BATCH_SIZE]
        for file, image in POOL.map(read, batch):
            if isinstance(image, UserError):
                print(f"predict.py: {image}", file=sys.stderr, flush=True)
                unreadable.append(file)
            else:
                names.append(file)
                images.append(image)
        if images:
            logits = network.predict_on_batch(np.stack(images))[keys.LOGITS]
            for name, values in zip(names, logits, strict=True):
                classes = keys.predicted_classes(values, num_targets)
                yield name, classes, values


def print_table(predictions, files, names, num_targets, kind):
    """Prints a header, then one row for each predicted file.

    `predictions` come from `predict_files`, `names` are class names, `kind` is
    "length" or "logit". Rows of `SEVERAL_LABELS` end with all the predictions.
    """
    names = [*map(printable, names)]
    layout = [
        f"<{max(map(len, ('file', *map(printable, files))))}",
        *[f"<{max(map(len, ('class', *names)))}", ">7"] * num_targets,
        *(f">{max(len(name), 7)}" for name in names),
    ]

    def print_row(*cells, note=""):
        print("  ".join([*map(format, cells, layout), note]).rstrip())

    for index, (file, classes, values) in enumerate(predictions):
        if index == 0:
            print_row("file", *["class", kind] * num_targets, *names)
        texts = [f"{value:.3f}" for value in values]
        best = [t for c in classes[:num_targets] for t in (names[c], texts[c])]
        num_present = (values[classes] > keys.PRESENT_LENGTH).sum()
        note = "" if num_targets else ", ".join(names[c] for c in classes)
        if kind == "length" and num_present < max(num_targets, 1):
            number = "only one" if num_present else "no"
            note = f"{number} capsule is longer than {keys.PRESENT_LENGTH}"
        print_row(printable(file), *best, *texts, note=note)


def print_json(predictions, names, kind):
    """Prints a JSON document for each prediction; see `print_table`."""
    for file, classes, values in predictions:
        numbers = [round(float(value), 7) for value in values]
        best = [{"class": names[c], kind: numbers[c]} for c in classes]
        if kind == "length":
            for prediction in best:
                prediction["present"] = prediction[kind] > keys.PRESENT_LENGTH
        by_class = dict(zip(names, numbers, strict=True))
        document = {"file": file, "predictions": best, f"{kind}s": by_class}
        print(to_json(document))


def export(path, network):
    """Writes `path`: .keras, .npz (for `layers.pretrained`) or a SavedModel."""
    from keras.ops import convert_to_numpy

    with atomic_write(path) as partial:
        if partial.suffix == ".keras":
            network.save(partial)
        elif partial.suffix == ".npz":
            weights = {
                weight.path: convert_to_numpy(weight).astype("float16")
                for weight in network.weights
            }
            np.savez_compressed(partial, **weights)
        else:
            with user_errors(f"{path}: cannot export a SavedModel"):
                network.export(partial, format="tf_saved_model", verbose=False)
    print(f"Exported to {path}", file=sys.stderr)


def main(arguments):
    """Exports the network, if asked to, and predicts the files, if given."""
    values = absl_flags.FLAGS
    if not (arguments or values.export):
        raise UserError("give images, folders of images or -, or use --export")
    path = pathlib.Path(values.export or "")
    if path.suffix not in (".keras", ".npz", ""):
        raise UserError(
            f"--export={path} is not NAME.keras, NAME.npz or a folder"
        )
    load_backend()
    # Imported here, so that --help does not wait for TensorFlow.
    from training import devices, inference

    with devices.use(Config(num_processes=1)):
        checkpoint = inference.open_or_pretrained(values)
        model = inference.load_network(checkpoint)
        shape = checkpoint.architecture.shape
        network = model.functional()
        if values.export:
            export(values.export, network)
        if not arguments:
            return 0
        dataset = checkpoint.run_settings.get("dataset") or values.dataset
        config = resolve.for_evaluation(Config(dataset=dataset), checkpoint)
        bright = []  # names of digits with a bright edge
        prepare = inference.preparation(config, shape, values.center, bright)
        names = inference.class_names(checkpoint, values.class_names)
        files, unreadable = list_files(arguments), []
        num_targets = values.num_targets or config.num_targets
        prepare = functools.partial(prepare, invert=values.invert)
        predictions = predict_files(
            files, network, prepare, num_targets, unreadable
        )
        kind = "length" if model.has_lengths else "logit"
        if values.format == "json":
            print_json(predictions, names, kind)
        else:
            print_table(predictions, files, names, num_targets, kind)
    if bright:
        print(
            f"predict.py: {len(bright)} images, such as "
            f"{printable(min(bright))}, are not digits on black inside a "
            "margin: see --invert and --center",
            file=sys.stderr,
        )
    return 1 if unreadable else 0


if __name__ == "__main__":
    flags.define(Config, ["dataset", "model", "num_targets"])
    absl_flags.DEFINE_string(
        "checkpoint", None, "The checkpoint, such as DIR/train/model.ckpt-1000."
    )
    absl_flags.DEFINE_bool(
        "center",
        False,
        "Whether to prepare digits as demo.py prepares drawings: without their "
        "background, scaled and centered as in MNIST.",
    )
    absl_flags.DEFINE_list(
        "class_names",
        None,
        "Names of the classes. Default: the checkpoint's, else numbers.",
    )
    absl_flags.DEFINE_string(
        "export",
        None,
        "Where to write the network: NAME.keras, NAME.npz with weights as "
        "float16, or a folder for a SavedModel.",
    )
    absl_flags.DEFINE_enum(
        "format", "table", ["table", "json"], "Print a table or JSON lines."
    )
    absl_flags.DEFINE_bool(
        "invert", False, "Whether images are dark on bright, such as on paper."
    )
    flags.run(main, takes_arguments=True)
