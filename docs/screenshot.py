"""The picture of the report in the README: python docs/screenshot.py runs/demo/report.html (needs Chromium).

It shows how the methods of `fedtct demo` went.
"""

import os
import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

IMAGE = Path(__file__).parent / "images" / "report.png"


def main(page: Path) -> None:
    """Take the picture."""
    with sync_playwright() as driver:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=sandbox)
        view = browser.new_page(viewport={"width": 1120, "height": 840}, color_scheme="light")
        view.goto(page.absolute().as_uri())
        view.wait_for_selector("body[data-ready]")
        view.evaluate("scrollTo(0, document.querySelectorAll('section')[1].offsetTop - 80)")  # below what stays on top
        view.screenshot(path=IMAGE)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
