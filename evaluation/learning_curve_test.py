import numpy as np
import tensorflow as tf
from matplotlib.text import Text

from evaluation import learning_curve
from training.curve import Curve

# Matplotlib's first two colours.
BLUE, ORANGE = (31, 119, 180), (255, 127, 14)


def test_every_part_of_a_run_is_drawn(tmp_path):
    seen = []
    for part, factor in (("train", 1), ("test", 3)):
        (tmp_path / part).mkdir()
        curve = Curve(tmp_path / part)
        for step in (10, 20):
            curve.add(step, factor / step, 1 - factor / step)
        learning_curve.write(tmp_path)
        png = (tmp_path / learning_curve.FILE).read_bytes()
        pixels = tf.io.decode_png(png, channels=3).numpy()
        for half in np.split(pixels, [pixels.shape[1] // 2], axis=1):
            for colour in (BLUE, ORANGE):
                seen.append((half == colour).all(axis=-1).sum() > 20)
    # Of loss and accuracy: test is blue, and train orange once it is second.
    assert seen == [True, False] * 2 + [True, True] * 2


def test_what_others_have_beside_it_is_not_read(tmp_path):
    for part in ("train", "other"):
        (tmp_path / part).mkdir()
    Curve(tmp_path / "train").add(10, 0.5, 0.5)
    (tmp_path / "other" / "curve.csv").write_text("a,b\n1,2\n")
    learning_curve.write(tmp_path)
    assert (tmp_path / learning_curve.FILE).is_file()


def test_nothing_is_drawn_as_a_formula(monkeypatch):
    texts = {}

    def read(figure, dpi):
        figure.draw_without_rendering()
        texts.update((t.get_text(), t) for t in figure.findobj(Text))

    monkeypatch.setattr(learning_curve, "png", read)
    learning_curve.draw({"train": {1: (0.06, 0.1), 2: (0.006, 0.9)}}, "$a$b$")
    assert not texts.pop("$a$b$").get_parse_math()
    assert not [text for text in texts if "$" in text]
    assert {"0.01", "0.05"} <= texts.keys()
