"""The published results, and the commands that reproduce them.

Published figures are test errors in percent.
"""

import dataclasses

_SABOUR = "Sabour, Frosst, Hinton 2017"
_TABLE_1 = f"{_SABOUR}, table 1"
_OTHER_BASELINE = f"{_TABLE_1}, another network"
_SU = "Su 2018"
_HINTON = "Hinton, Sabour, Frosst 2018"
_MAZZIA = "Mazzia, Salvetti, Chiaberge 2021"

_COSINE = "schedule=cosine"
_NOT_HERE = "its data were not at hand"
_NO_TIME = "not enough time on two CPU cores yet"
# Steps of 20 passes over the 60,000 images of MNIST, by 128.
_LONG = 9380
# Its test images are 320,000.
_AFFNIST = "--dataset=affnist --eval_size=320000"
_CAPSULES = "--model=shared_capsule --batch_size=64"
_MUON = "optimizer=muon,learning_rate=0.004"
_MUON_16 = f"num_prime_capsules=16,{_MUON}"


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Other images that the trained network is also tested on.

    Attributes:
      name: string, what they are.
      flags: string, what differs from the training's flags.
      published: float, test error in percent; None if none is.
      source: string, who published it; None: who did the experiment's.
    """

    name: str
    flags: str
    published: float | None = None
    source: str | None = None


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One published result.

    Attributes:
      name: string, by which reproduce.py knows it.
      title: string, data and network.
      dataset: string, `--dataset`; with it also the folder of `--data_dir`.
      max_steps: int, training steps.
      hparams: string, `--hparams_override`.
      flags: string, other flags of experiment.py.
      published: float, test error in percent; None if none is.
      source: string, who published it.
      others: tuple of `Evaluation`s.
      members: int, networks of the published ensemble: the seeds from 0.
      in_short: bool, whether the short table has it too.
      not_run: string, why there may be no result yet.
    """

    name: str
    title: str
    dataset: str
    max_steps: int
    hparams: str = ""
    flags: str = ""
    published: float | None = None
    source: str = _SABOUR
    others: tuple = ()
    members: int = 1
    in_short: bool = True
    not_run: str = _NO_TIME

    def figure(self, measured=None):
        """The published error, of itself or one of `others`, and the source."""
        measured = measured or self
        if measured.published is None:
            return "not published"
        return f"{measured.published:g} % ({measured.source or self.source})"


def _mnist_table(
    name, title, hparams, published, flags="", steps=_LONG, source=_TABLE_1
):
    return Experiment(
        name=f"mnist-{name}",
        title=f"MNIST, {title}",
        dataset="mnist",
        max_steps=steps,
        hparams=f"{hparams},{_COSINE}".strip(","),
        flags=flags,
        published=published,
        source=source,
    )


def _multimnist(
    name, title, steps, hparams="", batch_size=64, flags="", **values
):
    """Sabour's, with all 32 types of primary capsules or some of them."""
    if "num_prime_capsules" in hparams:
        values["source"] = f"{_TABLE_1}, 32 types"
    return Experiment(
        name=f"multimnist{name}",
        title=f"MultiMNIST, {title}",
        dataset="mnist",
        max_steps=steps,
        hparams=f"{hparams},{_COSINE}".strip(","),
        flags=f"--num_targets=2 --batch_size={batch_size} {flags}".strip(),
        **{"published": 5.2, "source": _TABLE_1, **values},
    )


def _shared(name, title, steps, hparams="", flags=_CAPSULES, **published):
    """One of Su's networks, or a variant; published: single and pairs."""
    others = ()
    if "share_weights=false" not in hparams:
        pairs = "--num_targets=2 --pairs=below"
        published_pairs = published.get("pairs")
        others = (Evaluation("pairs below each other", pairs, published_pairs),)
    return Experiment(
        name=name,
        title=f"MNIST, {title}",
        dataset="mnist",
        max_steps=steps,
        hparams=f"{hparams},{_COSINE}".strip(","),
        flags=f"--shift=0 {flags}",
        published=published.get("single"),
        source=_SU,
        others=others,
    )


def _em(name, title, routed, steps=11000, margin_steps=1000, rate=0.01):
    """A small network of matrix capsules: 11,000 steps are half an hour."""
    return Experiment(
        name=f"matrix-capsule-{name}",
        title=f"MNIST, EM routing, {title}",
        dataset="mnist",
        max_steps=steps,
        hparams="conv_channels=64,primary_types=8,first_types=8,second_types=8,"
        f"{routed},conv_stddev=0.2,kernel_stddev=0.5,conv_lambda=0.03,"
        f"class_lambda=0.1,margin_steps={margin_steps},learning_rate={rate},"
        f"{_COSINE}",
        flags="--model=matrix_capsule --batch_size=32",
        published=0.44,
        source=_HINTON,
    )


_ABLATION = {
    "direction-1": ("one iteration", "routing=1"),
    "direction-3": ("direction, 3 iterations (his)", ""),
    "direction-5": ("direction, 5 iterations", "routing=5"),
    "squashed-3": ("squash each time, 3 iterations", "compare=squashed"),
    "squashed-5": (
        "squash each time, 5 iterations",
        "compare=squashed,routing=5",
    ),
    "adding-3": (
        "Sabour's adding, 3 iterations",
        "compare=squashed,logits=add",
    ),
    "adding-5": (
        "Sabour's adding, 5 iterations",
        "compare=squashed,logits=add,routing=5",
    ),
    "unshared-3": ("weights not shared, 3 iterations", "share_weights=false"),
}

_ALL = (
    _mnist_table(
        "baseline",
        "the reference's baseline",
        "",
        0.39,
        "--model=baseline",
        source=_OTHER_BASELINE,
    ),
    # The loss of the paper's baseline; the reference's has the margin loss.
    _mnist_table(
        "baseline-softmax",
        "the reference's baseline, cross-entropy",
        "loss_type=softmax",
        0.39,
        "--model=baseline",
        source=_OTHER_BASELINE,
    ),
    _mnist_table(
        "1-plain", "1 iteration, no decoder", "routing=1,remake=false", 0.34
    ),
    _mnist_table("1", "1 iteration, decoder", "routing=1", 0.29),
    _mnist_table("3-plain", "3 iterations, no decoder", "remake=false", 0.35),
    _mnist_table("3", "3 iterations, decoder", "", 0.25),
    _mnist_table(
        "3-long",
        "3 iterations, decoder, 40 passes",
        "",
        0.25,
        steps=2 * _LONG,
    ),
    _mnist_table(
        "3-muon",
        "3 iterations, decoder, Muon",
        _MUON,
        0.25,
    ),
    # 9 times as many pairs as there are images, in small batches: the more
    # steps from two hours on two CPU cores.
    _multimnist("", "3 iterations, decoder", 8442),
    # A quarter of the primary capsules makes steps twice as fast, and errors
    # fall with the number of steps.
    _multimnist(
        "-small",
        "8 types of primary capsules, 3 iterations, decoder",
        30000,
        "num_prime_capsules=8,learning_rate=0.0025",
        batch_size=32,
        in_short=False,
    ),
    # Twice the pairs in nearly as many steps and as much time.
    _multimnist(
        "-small-64",
        "8 types of primary capsules, batches of 64",
        26264,
        "num_prime_capsules=8,learning_rate=0.004",
        in_short=False,
    ),
    # Twice the types, and Muon, which needs fewer steps.
    _multimnist(
        "-muon",
        "16 types of primary capsules, Muon",
        17822,
        _MUON_16,
        in_short=False,
    ),
    # More steps of the same.
    _multimnist(
        "-muon-long",
        "16 types of primary capsules, Muon, 24,388 steps",
        24388,
        _MUON_16,
        in_short=False,
    ),
    # More types in place of more steps.
    _multimnist(
        "-muon-24",
        "24 types of primary capsules, Muon",
        15946,
        f"num_prime_capsules=24,{_MUON}",
        in_short=False,
    ),
    # The paper's types.
    _multimnist(
        "-muon-32",
        "32 types of primary capsules, Muon",
        15946,
        _MUON,
    ),
    _multimnist(
        "-baseline",
        "the reference's baseline",
        8442,
        flags="--model=baseline",
        published=8.1,
        source=_OTHER_BASELINE,
    ),
    Experiment(
        name="affnist",
        title="MNIST moved on 40x40",
        dataset="mnist",
        max_steps=_LONG,
        hparams=_COSINE,
        flags="--shift=6 --pad=6",
        published=0.77,
        source=f"{_SABOUR}, section 5.2, on moved test images",
        others=(
            Evaluation(
                "affNIST", _AFFNIST, 21.0, f"{_SABOUR}, section 5.2, affNIST"
            ),
        ),
        not_run=_NOT_HERE,
    ),
    Experiment(
        name="cifar10",
        title="CIFAR-10, 64 types, leaky routing",
        dataset="cifar10",
        max_steps=600_000,
        hparams="num_prime_capsules=64,padding=SAME,leaky=true,remake=false",
        published=10.6,
        source=f"{_SABOUR}, ensemble of 7",
        members=7,
        not_run=_NOT_HERE,
    ),
    Experiment(
        name="smallnorb",
        title="smallNORB",
        dataset="norb",
        max_steps=300_000,
        flags="--eval_size=24300",
        published=2.7,
        not_run=_NOT_HERE,
    ),
    Experiment(
        name="svhn",
        title="SVHN, the smaller network",
        dataset="svhn",
        max_steps=300_000,
        hparams="preset=svhn",
        flags="--eval_size=26032",
        published=4.3,
        not_run=_NOT_HERE,
    ),
    # 6 passes over the images, pooling 10, the ablation 2.
    _shared("shared-capsule", "shared weights", 5628, single=0.7, pairs=5.0),
    _shared(
        "pooling",
        "global average pooling",
        9380,
        flags="--model=pooling --batch_size=64",
        single=0.7,
        pairs=60.0,
    ),
    *(
        _shared(f"shared-{name}", title, 1876, hparams)
        for name, (title, hparams) in _ABLATION.items()
    ),
    Experiment(
        # 12 passes over the images: half an hour on two CPU cores.
        name="efficient-capsule",
        title="MNIST, self-attention",
        dataset="mnist",
        max_steps=11_256,
        hparams=f"{_COSINE},learning_rate=0.001",
        flags="--model=efficient_capsule --batch_size=64",
        published=0.26,
        source=f"{_MAZZIA} (quoted from memory)",
    ),
    Experiment(
        name="efficient-capsule-long",
        title="MNIST, self-attention, augmented, 64 passes",
        dataset="mnist",
        max_steps=60_000,
        hparams=f"{_COSINE},learning_rate=0.001",
        flags="--model=efficient_capsule --batch_size=64 --augment",
        published=0.26,
        source=f"{_MAZZIA} (quoted from memory)",
    ),
    _em("1", "1 iteration, over types", "routing=1,normalise=types"),
    _em("2", "2 iterations, over types", "routing=2,normalise=types"),
    _em("3", "3 iterations, over types", "routing=3,normalise=types"),
    _em(
        "long",
        "2 iterations, over types, 14.4 passes",
        "routing=2,normalise=types",
        steps=27000,
    ),
    _em(
        "parents",
        "2 iterations, over all parents",
        "padding=SAME,routing=2",
        steps=9000,
        margin_steps=9000,
        rate=0.006,
    ),
    Experiment(
        name="matrix-capsule-norb",
        title="smallNORB, EM routing",
        dataset="norb",
        max_steps=300_000,
        flags="--model=matrix_capsule --eval_size=24300",
        published=1.8,
        source=_HINTON,
        not_run=_NOT_HERE,
    ),
)
EXPERIMENTS = {experiment.name: experiment for experiment in _ALL}
