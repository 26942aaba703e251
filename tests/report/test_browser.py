"""The page in Debian's Chromium: it loads in silence, charts are there, switches work, nothing clips."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from fedtct.report.page import write_report
from fedtct.runs.reading import read_runs

pytestmark = pytest.mark.xdist_group("report")

DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 780}

# Texts of charts that stick out of them, and neighbouring labels of an axis that overlap.
OUTSIDE = """() => [...document.querySelectorAll('.chart')].filter(c => c.offsetParent).flatMap(chart => {
  const frame = chart.getBoundingClientRect();
  return [...chart.querySelectorAll('text')].filter(t => t.textContent.trim()).filter(t => {
    const box = t.getBoundingClientRect();
    const inside = box.left >= frame.left - 2 && box.right <= frame.right + 2;
    return !inside || box.top < frame.top - 2 || box.bottom > frame.bottom + 2;
  }).map(t => t.textContent);
})"""
OVERLAPPING = """() => [...document.querySelectorAll('.chart')].filter(c => c.offsetParent).flatMap(chart =>
  ['.xtick', '.ytick'].flatMap(kind => {
    const boxes = [...chart.querySelectorAll(`${kind} text`)].map(t => [t.textContent, t.getBoundingClientRect()]);
    return boxes.slice(1).filter(([, b], i) => {
      const a = boxes[i][1];
      return a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
    }).map(([text]) => text);
  }))"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    assert found, "Chromium is missing: make chromium installs it"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        yield browser
        browser.close()


class Visit:
    """A page that was opened, and everything it complained about or asked the network for."""

    def __init__(self, browser: Browser, path: Path, **look: Any) -> None:
        self.complaints: list[str] = []
        self.page: Page = browser.new_context(offline=True, **look).new_page()
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", lambda said: self.complaints.append(said.text))
        self.page.on("request", lambda asked: self._note(asked.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("body[data-ready]", timeout=60_000)

    def _note(self, url: str) -> None:
        if not url.startswith(("file:", "data:", "blob:")):
            self.complaints.append(f"asked for {url}")

    def visible_traces(self, chart: int) -> dict[str, int]:
        """How many traces of each method a chart shows."""
        shown: dict[str, int] = self.page.evaluate(
            """at => {
              const shown = {};
              const chart = [...document.querySelectorAll('.chart')].filter(c => c.offsetParent)[at];
              for (const trace of chart.data) {
                const of = trace.meta && trace.meta.method;
                if (of) shown[of] = (shown[of] || 0) + (trace.visible !== false);
              }
              return shown;
            }""",
            chart,
        )
        return shown


@pytest.fixture(scope="module")
def page_file(compared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(read_runs(compared), tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture(scope="module")
def visit(browser: Browser, page_file: Path) -> Visit:
    """A visit during which tests look at one thing after the other, as people do."""
    return Visit(browser, page_file, viewport=DESKTOP)


def test_it_loads_in_silence_and_draws_every_chart(visit: Visit) -> None:
    charts = visit.page.locator(".chart:visible")
    assert charts.count() >= 12
    for index in range(charts.count()):
        assert charts.nth(index).locator(".main-svg").count() >= 1
        assert charts.nth(index).locator(".scatterlayer path, .heatmaplayer image, .barlayer path").count() >= 1
    assert visit.page.evaluate(OUTSIDE) == []
    assert visit.page.evaluate(OVERLAPPING) == []
    assert visit.complaints == []


def test_methods_can_be_switched_off_and_on_everywhere(visit: Visit) -> None:
    button = visit.page.get_by_role("button", name="FedAvg").first
    before = visit.visible_traces(0)
    assert before["FedAvg"] > 0 < before["TCT"]
    button.click()
    assert visit.visible_traces(0) == before | {"FedAvg": 0}
    assert visit.visible_traces(1)["FedAvg"] == 0
    assert visit.page.locator("tr.off").count() >= 2
    button.click()
    assert visit.visible_traces(0) == before
    assert visit.page.locator("tr.off").count() == 0
    assert visit.complaints == []


def test_values_are_shown_on_hover(visit: Visit) -> None:
    visit.page.locator(".chart").first.locator(".nsewdrag").first.hover()
    shown = visit.page.locator(".hoverlayer").first
    shown.locator("text").first.wait_for(timeout=5000)
    text = shown.text_content() or ""
    assert "Centralized" in text
    assert "%" in text


def test_a_choice_shows_one_chart_at_a_time(visit: Visit) -> None:
    choice = visit.page.locator(".choice").last
    assert choice.locator(".option:visible").count() == 1
    choice.get_by_role("button").last.click()
    last = choice.locator(".option").last
    last.locator(".main-svg").first.wait_for()
    assert choice.locator(".option:visible").count() == 1
    assert last.is_visible()


LONG = "St. Bartholomew's and the Royal London Hospital NHS Trust, <b>ward {}</b> & co"


@pytest.fixture(scope="module")
def long_names(compared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run whose silos and classes have names as hospitals and diseases do, and one with 100 classes."""
    folder = tmp_path_factory.mktemp("long")
    for name, classes in {"few": 10, "many": 100}.items():
        shutil.copytree(compared / "tct-classes4-seed0", folder / name)
        split, table = (folder / name / "findings" / f"{which}.json" for which in ("split", "classes"))
        found = json.loads(split.read_text())
        for number, silo in enumerate(found["silos"]):
            silo["name"], silo["counts"] = LONG.format(number), [1 + k % 7 for k in range(classes)]
        found["class_names"] = [f"chronic obstructive pulmonary disease, type {k}" for k in range(classes)]
        found["class_names"][0] = "@0"  # which elsewhere stands for a colour
        split.write_text(json.dumps(found))
        confusion = [[9 if i == j else (i * j) % 3 for j in range(classes)] for i in range(classes)]
        table.write_text(json.dumps({"confusion": confusion, "tested": True}))
        write_report(read_runs(folder / name), folder / f"{name}.html")
    return folder


@pytest.mark.parametrize(
    "look", [{"viewport": DESKTOP}, {"viewport": PHONE, "is_mobile": True}], ids=["desktop", "phone"]
)
@pytest.mark.parametrize("name", ["few", "many"])
def test_long_names_and_many_classes_leave_room_for_the_charts(
    browser: Browser, long_names: Path, name: str, look: dict[str, Any]
) -> None:
    visit = Visit(browser, long_names / f"{name}.html", **look)
    assert visit.page.evaluate(OUTSIDE) == []
    assert visit.page.evaluate(OVERLAPPING) == []
    shares = visit.page.evaluate(
        """() => [...document.querySelectorAll('.chart')].map(c => c._fullLayout._size.w / c.clientWidth)"""
    )
    assert min(shares) > 0.3
    assert visit.page.locator(".chart text tspan[style*=bold]").count() == 0, "a name was taken for HTML"
    assert visit.page.locator(".chart text:has-text('St. B')").count() > 0
    assert visit.page.locator(".chart text:has-text('@0')").count() > 0
    assert visit.complaints == []


@pytest.mark.parametrize("width", [1300, 800, 480])
def test_a_name_without_spaces_does_not_make_the_page_wider_than_the_window(
    browser: Browser, compared: Path, tmp_path: Path, width: int
) -> None:
    """As a file may be called: 240 letters."""
    shutil.copytree(compared / "fedavg-classes4-seed0", tmp_path / "run")
    for file in ("metrics.jsonl", "agreement.json", "findings/split.json"):
        text = (tmp_path / "run" / file).read_text()
        (tmp_path / "run" / file).write_text(text.replace('"silo 0"', f'"{"Hospital" * 30}"'))
    page = write_report(read_runs(tmp_path / "run"), tmp_path / "report.html")
    visit = Visit(browser, page, viewport={"width": width, "height": 900})
    assert visit.page.locator("th", has_text="Hospital" * 30).count() == 1  # whole, for those who look for it
    assert visit.page.evaluate("document.documentElement.scrollWidth") == width
    shutil.rmtree(tmp_path / "run" / "findings")  # where silos are elsewhere, other tables have their names
    visit = Visit(browser, write_report(read_runs(tmp_path / "run"), page), viewport={"width": width, "height": 900})
    assert visit.page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize(("scheme", "background"), [("light", "rgb(255, 255, 255)"), ("dark", "rgb(20, 23, 26)")])
def test_light_and_dark_on_a_phone(browser: Browser, page_file: Path, scheme: str, background: str) -> None:
    visit = Visit(browser, page_file, viewport=PHONE, color_scheme=scheme, is_mobile=True, has_touch=True)
    evaluate = visit.page.evaluate
    assert evaluate("getComputedStyle(document.body).backgroundColor") == background
    assert evaluate("getComputedStyle(document.querySelector('.xtick text')).fill") != background
    assert evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    assert evaluate(OUTSIDE) == []
    assert evaluate(OVERLAPPING) == []
    assert visit.complaints == []


def test_only_methods_of_the_shown_task_have_a_switch(browser: Browser, compared: Path, tmp_path: Path) -> None:
    shutil.copytree(compared / "tct-classes4-seed0", tmp_path / "iid")
    config = tmp_path / "iid" / "config.toml"
    config.write_text(config.read_text().replace("classes:4", "iid"))
    runs = read_runs(compared / "fedavg-classes4-seed0", tmp_path / "iid")
    page = Visit(browser, write_report(runs, tmp_path / "report.html"), viewport=DESKTOP).page
    for task, method in (("digits, classes:4", "FedAvg"), ("digits, iid", "TCT")):
        page.get_by_role("button", name=task).click()
        assert page.locator(".methods button:visible").all_text_contents() == [f"{'●▲'[method == 'TCT']} {method}"]


def test_numbers_of_a_chart_can_be_read_without_a_pointer(browser: Browser, page_file: Path, long_names: Path) -> None:
    page = Visit(browser, page_file, viewport=DESKTOP).page
    figures = page.locator("figure:visible")
    assert page.get_by_role("img", name="Test accuracy by round").count() == 1
    assert page.get_by_role("group", name="What each class is taken for").count() == 1
    for index in range(figures.count()):
        figures.nth(index).locator("summary").press("Enter")
        figures.nth(index).locator("li").first.wait_for()
    told = page.locator(".numbers li").all_text_contents()
    assert not [line for line in told if any(sign in line for sign in ("%{", "<", "undefined", "NaN", "null"))]
    assert any(re.fullmatch(r"TCT, round \d+: \d+\.\d %.*, stage 2 round 2", line) for line in told)
    page = Visit(browser, long_names / "few.html", viewport=DESKTOP).page
    chart = page.locator("figure:visible", has=page.get_by_role("img", name="Who holds what"))
    chart.locator("summary").click()
    assert chart.locator("li").first.text_content() == f"{LONG.format(0)} class @0: 1 samples"
