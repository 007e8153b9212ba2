"""The page, as a process serves it and as headless Chromium shows it."""

import socket

import numpy as np
import pytest

import demo
import experiment
from demonstration.exhibit_test import png, save
from old.errors import UserError
from testing import browser, commands
from testing.commands import served
from testing.small_models import overrides
from training.config import Config

needs_browser = pytest.mark.skipif(
    browser.find() is None, reason="no Chromium is installed"
)
# Shares of the width and height of the drawing surface.
ZERO = [
    (0.5 + 0.2 * np.sin(angle), 0.5 - 0.3 * np.cos(angle))
    for angle in np.linspace(0, 2 * np.pi, 25)
]
MINUS = [(0.2, 0.5), (0.8, 0.5)]
BARS = (
    "[...document.querySelectorAll('.bar')].map(b => b.lastChild.textContent)"
)
MESSAGE = "document.querySelector('#message.error')?.textContent"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a short training."""
    folder = str(tmp_path_factory.mktemp("training"))
    experiment.run(
        Config(
            summary_dir=folder,
            hparams_override=overrides(
                "capsule", conv_channels=12, num_prime_capsules=4
            ),
            batch_size=32,
            max_steps=150,
        )
    )
    return folder


def picture(page, element):
    """The address of a picture, which is its content."""
    return page.evaluate(f"document.querySelector('{element}').src")


def lengths(page):
    return [float(text) for text in page.evaluate(BARS)]


@needs_browser
@pytest.mark.slow
def test_drawing_moving_and_a_damaged_file(trained, tmp_path):
    with served(trained) as address, browser.opened(address) as page:
        port = int(address.split(":")[-1].strip("/"))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port))

        # The capsules of an empty image first.
        page.wait("look !== null && !isBusy")
        before = lengths(page)
        page.stroke("#drawing", ZERO)
        # Parts of the stroke are looked at too, and may be taken for a zero.
        page.wait("look.predicted[0] === 0 && !isBusy")
        after = lengths(page)
        assert after != before
        assert after[0] == max(after) > 0.3
        assert (
            page.evaluate("document.querySelectorAll('#maps canvas').length")
            == 3
        )

        # An atom of the longest capsule, at the end of its slider.
        remake = page.wait("document.querySelector('#moved').src")
        assert remake == picture(page, "#remake")
        slider = "#atoms .atom:nth-child(3) input"
        page.stroke(slider, [(0.5, 0.5), (0.75, 0.5), (0.99, 0.5)])
        page.wait(f"document.querySelector('#moved').src !== '{remake}'")
        assert picture(page, "#remake") == remake
        page.click("#back")
        page.wait(f"document.querySelector('#moved').src === '{remake}'")
        # Another class.
        page.click(".bar:nth-child(4)")
        page.wait(f"document.querySelector('#moved').src !== '{remake}'")
        assert (
            page.evaluate("document.querySelector('#chosen').textContent")
            == "3"
        )

        sound = png(np.eye(28, dtype=np.uint8) * 255)
        (tmp_path / "damaged.png").write_bytes(sound[:-20])
        page.choose_file("#file", tmp_path / "damaged.png")
        message = page.wait(MESSAGE)
        assert message.startswith("damaged.png is not a sound PNG, JPEG, BMP,")
        assert lengths(page) == after
        (tmp_path / "sound.png").write_bytes(sound)
        page.choose_file("#file", tmp_path / "sound.png")
        page.wait(f"!{MESSAGE} && !isBusy")
        assert lengths(page) != after

        for predicted, same in (("right", "==="), ("wrong", "!==")):
            page.click(f"[data-predicted={predicted}]")
            page.wait(f"look.labels?.[0] {same} look.predicted[0]")
        # Narrow screens need no scrolling to the side.
        page.resize(390, 844)
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        # Chromium notes the answer to the damaged file; else nothing.
        assert [c for c in page.complaints if "400 (Bad" not in c] == []


@needs_browser
@pytest.mark.slow
def test_without_a_decoder_and_data_there_are_bars_and_couplings(tmp_path):
    path = save(tmp_path, remake=False, dataset="images")
    with served(path) as address, browser.opened(address) as page:
        page.wait("look !== null")
        page.stroke("#drawing", MINUS)
        page.wait("look.image.length > 200 && !isBusy")
        assert (
            page.evaluate("document.querySelectorAll('#maps canvas').length")
            == 3
        )
        shown = "document.querySelector('{}').checkVisibility()"
        for selector, is_shown in {
            "#no-decoder": True,
            "#no-test-images": True,
            "#remake": False,
            "#atoms": False,
            "#pens": False,
        }.items():
            assert page.evaluate(shown.format(selector)) == is_shown, selector
        assert page.complaints == []


def test_what_does_not_work_is_told_before_it_serves(tmp_path):
    def serve(path, host="127.0.0.1"):
        demo.serve(Config(train=False, checkpoint=path), host, 0)

    with pytest.raises(UserError, match="there is no checkpoint"):
        serve(str(tmp_path / "nothing"))
    with pytest.raises(UserError, match="no capsules to show"):
        serve(save(tmp_path / "baseline", "baseline"))
    with pytest.raises(UserError, match="--host=192.0.2.1 --port=0 cannot"):
        serve(save(tmp_path / "sound"), "192.0.2.1")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "demo.py: there is no checkpoint nothing/here"),
        # As of a variable that is not set; it would be all addresses.
        (("--host=",), "flag --host=: must be an address or a name"),
    ],
)
def test_the_command_prints_one_line_of_an_error(flags, message):
    code, _, errors = commands.run(
        "demo.py", "--checkpoint=nothing/here", *flags
    )
    assert code == 1
    assert errors.startswith(message)
    assert "Traceback" not in errors
