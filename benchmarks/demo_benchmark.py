"""Time from a pen stroke on the page of demo.py to its new bars.

  python benchmarks/demo_benchmark.py

Serves the default network, with weights as drawn at first, by demo.py in a
process of its own, and draws in headless Chromium: single dots, and strokes of
25 points, which the page sends as they are drawn. The time is the browser's,
from the last event of the pen to the last change of the bars.
"""

import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks import command_line
from checkpoints.architecture import Architecture
from testing import browser, untrained
from testing.commands import served

FLAGS = {"rounds": 25, **command_line.SETTING}
_POINTS = {"dot": 1, "stroke": 25}
_IDLE = "look !== null && !isBusy && !waiting.size"
# When the pen was seen last, and when a bar changed last.
_CLOCKS = """(() => {
  const events = ['pointerdown', 'pointermove'];
  const note = () => { window.drawn = performance.now(); };
  events.forEach(name => canvas.addEventListener(name, note, true));
  new MutationObserver(() => { window.shown = performance.now(); }).observe(
    document.querySelector('#bars'),
    {subtree: true, childList: true, characterData: true});
})()"""


def measure(flags):
    """A row for dots, and one for strokes."""
    if browser.find() is None:
        sys.exit("demo_benchmark.py: no Chromium is installed")
    with tempfile.TemporaryDirectory() as folder:
        setting = command_line.setting(flags)
        network = Architecture("capsule", setting.shape, 1, setting.hparams)
        path = untrained.save(folder, untrained.compiled(network), network)
        with served(path) as address:
            return _draw(address, flags.rounds)


def _draw(address, rounds):
    generator = np.random.default_rng(0)
    found = {name: [] for name in _POINTS}
    with browser.opened(address) as page:
        page.wait(_IDLE)
        page.evaluate(_CLOCKS)
        for name, points in list(_POINTS.items()) * rounds:
            page.click("#clear")
            page.wait(_IDLE)
            steps = generator.normal(0, 0.04, (points, 2)).cumsum(axis=0)
            places = np.clip(0.5 + steps, 0.1, 0.9)
            page.stroke("#drawing", [tuple(place) for place in places])
            page.wait(f"{_IDLE} && window.shown > window.drawn")
            found[name].append(page.evaluate("shown - drawn"))
    return [
        {
            "drawn": name,
            "median ms": statistics.median(times),
            "most ms": max(times),
        }
        for name, times in found.items()
    ]


if __name__ == "__main__":
    command_line.run(measure, FLAGS, __doc__)
