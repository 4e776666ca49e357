"""The pages in a real browser: live, harmless, and without a word in its console."""

from __future__ import annotations

import os
import re
from base64 import b64decode
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from urllib.parse import quote

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

from fdbqueue import KeyLimits, NewMessage, Queue, Then, fdb
from fdbqueue.web import application, server_sent_events
from tests.needs import require_browser
from tests.patience import eventually
from tests.taking import take
from tests.web.serving import serving

HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    path, driver = require_browser()
    options = webdriver.ChromeOptions()
    options.binary_location = path
    for each in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(each)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options=options, service=Service(driver))
    yield found
    found.quit()


def width(browser: webdriver.Chrome, pixels: int, height: int = 900) -> None:
    metrics = {"width": pixels, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def fits(browser: webdriver.Chrome, pixels: int) -> bool:
    """Whether the page has as many pixels in its width, and needs no more."""
    needed = "document.documentElement.scrollWidth"
    return script(browser, f"return innerWidth === {pixels} && {needed} <= {pixels}") is True


def shown(browser: webdriver.Chrome, selector: str) -> object:
    """The text of an element, also while the page replaces it."""
    return script(browser, f"return document.querySelector({selector!r})?.textContent")


def script(browser: webdriver.Chrome, text: str) -> object:
    run: Callable[[str], object] = browser.execute_script
    return run(text)


def test_pages_are_live_harmless_and_as_wide_as_the_screen(
    db: fdb.Database, space: fdb.Subspace, browser: webdriver.Chrome
) -> None:
    queue = Queue.create(db, HOSTILE, root=space, max_attempts=1)
    message_id = queue.enqueue(db, HOSTILE.encode(), headers={HOSTILE: HOSTILE})
    queue.schedules.set(db, HOSTILE, every=3600)
    name = quote(HOSTILE, safe="")
    with serving(application(db, root=space, allow_actions=True)) as address:
        browser.get(f"http://{address}/")
        eventually(lambda: shown(browser, "#live") == "live")
        queue.enqueue(db, b"x")
        eventually(lambda: shown(browser, "[data-label=Ready]") == "2")
        browser.get(f"http://{address}/queue?queue={name}")
        queue.enqueue(db, b"x")
        eventually(lambda: shown(browser, ".tile dd") == "3")
        queue.enqueue_many(db, [b"x"], group=Then(b"y", name=HOSTILE))
        queue.limits["api", HOSTILE].pause(db)
        queue.enqueue(db, b"x", limits={"api": HOSTILE})
        for path in (
            "",
            f"queue?queue={name}",
            f"message?queue={name}&id={message_id}",
            f"dead?queue={name}",
            f"find?queue={name}&what={quote('priority < 10')}",
            f"consumers?queue={name}",
            f"subscriptions?queue={name}",
            f"keys?queue={name}",
            f"schedules?queue={name}",
            f"groups?queue={name}",
            f"limits?dimension=api&limit={name}",
            f"streams?queue={name}",
            f"history?queue={name}",
            f"ask?action=purge&queue={name}",
            "audit",
        ):
            browser.get(f"http://{address}/{path}")
            for pixels in (1280, 400):
                width(browser, pixels)
                eventually(partial(fits, browser, pixels))
            assert browser.title != "owned"
        assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]


PICTURE = Path(__file__).parents[2] / "docs" / "assets" / "pages.webp"


def test_the_picture_of_the_readme_is_one_of_the_pages(
    db: fdb.Database, space: fdb.Subspace, browser: webdriver.Chrome
) -> None:
    """With FDBQUEUE_PICTURE=1 it takes the picture anew."""
    create = partial(Queue.create, db, root=space)
    orders, mail = create("orders", max_attempts=2), create("mail", keys=KeyLimits())
    create("invoices").enqueue_many(db, [b"x"] * 3)
    orders.enqueue_many(db, [b"%d" % n for n in range(48)])
    orders.ack(db, orders.receive_many(db, 24))
    for delivery in orders.receive_many(db, 5):
        orders.release(db, delivery, error="the bank is closed")
    orders.reject(db, orders.receive_many(db, 2), reason="no such customer")
    orders.receive_many(db, 6, consumer="till")
    mail.enqueue_many(db, [NewMessage(b"a letter", delay=3600)] * 12)
    mail.enqueue_many(db, [NewMessage(b"a telegram", key=str(n % 4)) for n in range(9)])
    with serving(application(db, root=space)) as address:
        width(browser, 1280, 420)
        browser.get(f"http://{address}/")
        eventually(lambda: shown(browser, "#live") == "live")
        script(browser, "document.querySelector('.store').textContent = 'shop.fdbq'")
        form = {"format": "webp", "quality": 30}
        taken = b64decode(browser.execute_cdp_cmd("Page.captureScreenshot", form)["data"])
    if os.environ.get("FDBQUEUE_PICTURE"):
        PICTURE.write_bytes(taken)
    header = slice(26, 30)  # of a WebP: its width and height
    assert PICTURE.read_bytes()[header] == taken[header]


def test_a_page_that_was_refused_its_stream_asks_again(
    db: fdb.Database,
    space: fdb.Subspace,
    browser: webdriver.Chrome,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_sent_events, "MAX_PAGES", 0)
    hurry = "const wait = setTimeout; setTimeout = (todo, ms) => wait(todo, Math.min(ms, 50));"
    command = "Page.addScriptToEvaluateOnNewDocument"
    added = browser.execute_cdp_cmd(command, {"source": hurry})
    try:
        with serving(application(db, root=space)) as address:
            browser.get(f"http://{address}/")
            eventually(lambda: shown(browser, "#live") == "not connected")
            monkeypatch.setattr(server_sent_events, "MAX_PAGES", 5)
            eventually(lambda: shown(browser, "#live") == "live")
            browser.get("about:blank")
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)
        browser.get_log("browser")  # type: ignore[no-untyped-call]


def test_an_operator_purges_with_the_keyboard(
    db: fdb.Database, space: fdb.Subspace, queue: Queue[bytes], browser: webdriver.Chrome
) -> None:
    queue.enqueue(db, b"x")
    with serving(application(db, root=space, allow_actions=True)) as address:
        browser.get(f"http://{address}/ask?action=purge&queue=orders")
        browser.find_element(By.CSS_SELECTOR, "button.danger").send_keys("\ue007")  # Enter
        eventually(lambda: browser.find_elements(By.CSS_SELECTOR, "p.done"))
        assert shown(browser, "p.done") == "1 message removed."
    assert queue.depth(db).ready == 0


REACHABLE = """
return [...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, pre')]
  .filter((each) => each.checkVisibility()).map((each) => each.outerHTML);
"""
FOCUSED = """
const each = document.activeElement, style = getComputedStyle(each);
if (each === document.body) return null;
return [each.outerHTML, style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2];
"""


def timeless(html: str) -> str:
    """An element without ages, which advance."""
    return re.sub(r"(>[^<]*</time>)", "></time>", html)


def test_the_keyboard_reaches_everything_and_shows_where_it_is(
    db: fdb.Database, space: fdb.Subspace, queue: Queue[bytes], browser: webdriver.Chrome
) -> None:
    one, _ = queue.enqueue_many(db, [b"x", b"y"])
    delivery = take(db, queue)
    queue.reject(db, delivery, "broken")
    width(browser, 1280)
    with serving(application(db, root=space, allow_actions=True)) as address:
        for path in (
            "queue?queue=orders",
            "dead?queue=orders",
            f"message?queue=orders&id={one}",
        ):
            browser.get(f"http://{address}/{path}")
            expected = script(browser, REACHABLE)
            assert isinstance(expected, list)
            reached = []
            for _ in range(2 * len(expected)):
                browser.switch_to.active_element.send_keys("\ue004")  # Tab
                focused = script(browser, FOCUSED)
                if focused is None:
                    break
                assert isinstance(focused, list)
                element, visible = focused
                assert visible, f"{path}: nobody sees that {element} has the focus"
                reached.append(element)
            missed = {timeless(each) for each in expected} - {timeless(each) for each in reached}
            assert missed == set(), path
