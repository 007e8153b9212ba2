import base64
import io
import json
import re
import shutil
from unittest import mock

import numpy as np
import pytest
from PIL import Image, ImageDraw
from starlette.testclient import TestClient

from common.errors import UserError
from config import Config
from demonstration import server
from demonstration.model import DemoModel
from input_data.keys import ImageShape
from testing import untrained
from testing.commands import start
from visualization.trained_model import covered_part


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("network")
    path = untrained.save(folder, *untrained.small())
    return DemoModel(Config(train=False, checkpoint=path, eval_size=30))


@pytest.fixture(scope="module")
def client(model):
    return TestClient(server.make_app(model), "http://127.0.0.1:7860")


def digit(color="white"):
    """A PNG file of a drawn one."""
    image = Image.new("RGB", (280, 280))
    ImageDraw.Draw(image).line((140, 40, 140, 240), color, 21)
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def picture(uri):
    content = base64.b64decode(uri.removeprefix("data:image/png;base64,"))
    return np.asarray(Image.open(io.BytesIO(content)))


def test_the_page_and_its_files(client):
    for path in ("/", "/page.js", "/page.css"):
        response = client.get(path)
        assert response.status_code == 200
        headers = response.headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "default-src 'self'" in headers["Content-Security-Policy"]
    assert client.get("/../config.py").status_code == 404
    description = client.get("/description").json()
    assert description["classes"] == [str(n) for n in range(10)]
    assert description["test_images"]


def test_a_drawing(client, model):
    shown = client.post("/drawing", content=digit()).json()
    for name in ("image", "reconstruction"):
        assert picture(shown[name]).shape == (28, 28, 3)
    couplings = np.array(shown["couplings"])
    assert couplings.shape == (3, 6, 6, 10)
    # Those of two types, at first equal.
    np.testing.assert_allclose(couplings.sum(axis=-1), 2, atol=1e-3)
    equal = client.get("/description").json()["map"]["equal"]
    assert equal == 0.2
    np.testing.assert_allclose(couplings[0], equal, atol=1e-4)
    assert np.ptp(couplings[2]) > np.ptp(couplings[1]) > 0
    lengths = np.linalg.norm(shown["capsules"], axis=-1)
    np.testing.assert_allclose(lengths, shown["lengths"], atol=1e-4)
    assert shown["predicted"] == [int(np.argmax(lengths))]
    # The drawing is centered.
    columns = picture(shown["image"]).sum(axis=(0, 2))
    assert 12 <= np.average(np.arange(28), weights=columns) <= 16
    assert client.post("/drawing", content=digit("black")).json() is None


def test_one_of_two_drawings_stays_where_it_was():
    sizes = {"_size": (36, 36), "_max_offset": 10, "_digit_size": 20}
    model = mock.Mock(_num_targets=2, **sizes)
    ink = np.zeros((100, 100), np.uint8)
    ink[20:40, 60:90] = 255  # its center is 30 % down and 75 % right
    (digit,) = np.moveaxis(DemoModel._centered(model, ink), -1, 0)
    rows, columns = np.nonzero(digit)
    assert rows.mean() + 0.5 == pytest.approx(0.3 * 36, abs=1)
    assert columns.max() == 35  # 20 pixels wide: at the border
    model._max_offset = 4
    digit = DemoModel._centered(model, ink)[..., 0]
    rows, columns = np.nonzero(digit)
    assert rows.mean() + 0.5 == pytest.approx(18 - 4, abs=1)
    assert columns.mean() + 0.5 == pytest.approx(18 + 4, abs=1)


def test_a_moved_capsule(client):
    shown = client.post("/drawing", content=digit()).json()
    (best,) = shown["predicted"]
    capsule = shown["capsules"][best]
    body = {"classes": [best], "capsules": [capsule]}
    same = client.post("/reconstruction", content=json.dumps(body)).json()
    both = (picture(r["reconstruction"]) for r in (same, shown))
    np.testing.assert_allclose(*(p.astype(int) for p in both), atol=1)
    body["capsules"] = [[3 * value for value in capsule]]
    other = client.post("/reconstruction", content=json.dumps(body)).json()
    assert other["reconstruction"] != shown["reconstruction"]


def test_test_images_and_files(client):
    wrong = client.post("/test_image?predicted=wrong").json()
    assert wrong["labels"] != wrong["predicted"]
    response = client.post("/file?name=a.png", content=b"not an image")
    assert response.status_code == 400
    assert response.json()["error"].startswith("a.png")
    drawn, dark = (
        picture(client.post(path, content=digit()).json()["image"])
        for path in ("/file?name=a.png", "/file?name=a.png&invert=true")
    )
    np.testing.assert_allclose(dark, 255 - drawn, atol=1)


@pytest.mark.parametrize(
    ("header", "own", "others"),
    [
        ("Origin", ["http://127.0.0.1:7860"], ["http://evil.example", "null"]),
        ("Host", ["localhost:7860", "192.168.1.2:7860"], ["evil.example:7860"]),
    ],
)
def test_other_web_pages_are_refused(client, header, own, others):
    for value in (*own, *others):
        headers = {header: value}
        response = client.post("/drawing", content=digit(), headers=headers)
        assert response.status_code == (200 if value in own else 403)


def test_bad_requests(client, monkeypatch):
    assert client.post("/reconstruction", content=b"{").status_code == 400
    for query in (
        *("file", "file?nam=x", "file?name=a&x=1", "file?name=a&body=1"),
        *("drawing?x=1", "test_image", "reconstruction?x=1"),
    ):
        answer = client.post(f"/{query}", content=digit())
        assert (query, answer.status_code) == (query, 400)
        assert answer.json()["error"].startswith("the query: ")
    large = io.BytesIO()
    Image.new("1", (8000, 8000)).save(large, "PNG")
    answer = client.post("/file?name=x", content=large.getvalue())
    assert (answer.status_code, "exceeds" in answer.text) == (400, True)
    monkeypatch.setattr(server, "MAX_BODY_BYTES", 3)
    assert client.post("/drawing", content=b"long").status_code == 400


def test_networks_without_capsules_data_or_decoder(tmp_path):
    path = untrained.save(tmp_path / "no", *untrained.small("pooling"))
    with pytest.raises(UserError, match="not a capsule network"):
        DemoModel(Config(train=False, checkpoint=path))
    network = untrained.small(remake=False)
    path = untrained.save(tmp_path, *network, dataset="mnist")
    two = DemoModel(Config(train=False, checkpoint=path, num_targets=2))
    assert two.description["targets"] == 2
    assert two.description["decoder"] is False
    with pytest.raises(UserError, match="no test images"):
        two.next_test_image(correct=True)


def test_two_objects_have_two_colors(tmp_path):
    network = untrained.small(shape=ImageShape(36, 36, 1, 10), num_targets=2)
    path = untrained.save(tmp_path, *network, dataset="mnist", num_targets=2)
    two = DemoModel(Config(train=False, checkpoint=path))
    image = np.random.default_rng(0).uniform(size=(36, 36, 1))
    shown = two.predict(image.astype("float32"))
    assert len(shown["predicted"]) == 2
    red, green, blue = np.moveaxis(picture(shown["reconstruction"]), -1, 0)
    np.testing.assert_array_equal(red, blue)
    assert (red != green).any()


@pytest.mark.parametrize(
    ("fields", "size", "expected"),
    [
        (((9, 1, "VALID"), (9, 2, "VALID")), (28, 28), (7.5, 7.5, 12, 12)),
        (((3, 2, "SAME"),), (8, 8), (0.5, 0.5, 8, 8)),
        (((5, 1, "SAME"),), (6, 8), (0, 0, 6, 8)),
    ],
)
def test_the_part_of_the_image_that_couplings_cover(fields, size, expected):
    names = ("top", "left", "height", "width")
    box = dict(zip(names, expected, strict=True))
    model = mock.Mock(receptive_field=lambda: fields)
    assert covered_part(model, size) == pytest.approx(box)


@pytest.fixture
def address(tmp_path):
    """That of the page of demo.py."""
    path = untrained.save(tmp_path, *untrained.small())
    with start("demo.py", f"--checkpoint={path}", "--port=0") as process:
        yield re.search(r"http://\S+:\d+/", process.stdout.readline())[0]
        process.kill()


HAS_BROWSER = shutil.which("chromium") and shutil.which("chromedriver")


@pytest.fixture
def browser(tmp_path):
    """Headless Chromium, driven by Selenium."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    flags = "headless no-sandbox disable-gpu no-first-run window-size=1200,1000"
    for flag in (*flags.split(), f"user-data-dir={tmp_path}/profile"):
        options.add_argument(f"--{flag}")
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    driver = webdriver.Chrome(options, service)
    driver.implicitly_wait(20)
    yield driver
    driver.quit()


@pytest.mark.slow
@pytest.mark.skipif(not HAS_BROWSER, reason="needs Chromium and its driver")
def test_the_page_in_a_browser(browser, address, tmp_path):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    def find(selector):
        return browser.find_element(By.CSS_SELECTOR, selector)

    def wait_until(condition):
        WebDriverWait(browser, 60).until(lambda _: condition())

    def reconstruction():
        return find("#moved").get_attribute("src")

    def is_done():
        return browser.execute_script(
            "return !isBusy && !!document.querySelector('.atom input')"
        )

    browser.get(address)
    wait_until(lambda: find("#name").text)
    assert not find("#seen").is_displayed()
    canvas = find("#drawing")
    ActionChains(browser).move_to_element_with_offset(
        canvas, 0, -80
    ).click_and_hold().move_by_offset(0, 150).release().perform()
    wait_until(is_done)
    assert find("#seen").is_displayed()
    assert re.fullmatch(
        r"This (is|may be) an? \d, probability 0\.\d\d", find("#message").text
    )
    drawn = find("#seen").get_attribute("src")
    assert picture(drawn).max() > 128
    before = reconstruction()
    browser.execute_script(
        "const s = document.querySelector('.atom input');"
        "s.value = s.max; s.dispatchEvent(new Event('input'));"
    )
    wait_until(is_done)
    assert reconstruction() != before
    (tmp_path / "file.png").write_bytes(digit())
    find("#file").send_keys(str(tmp_path / "file.png"))
    wait_until(lambda: find("#message").text.startswith("file.png: "))
    find("#clear").click()
    wait_until(lambda: not find("#seen").is_displayed())
    assert not find("#message").text
    assert not [
        line for line in browser.get_log("browser") if line["level"] == "SEVERE"
    ]
