#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Look at twillrun --page in headless Chromium: look_at_page.py BIN HANGS FOLDER [twillrun option ...]

By hand, as it needs Chromium, its driver and python3-selenium. It starts a job of 4 ranks of which rank 1 is late for 4 s and rank 2
dies, and prints the tiles of both as the browser shows them first, with the time that passed since. It writes pictures of a wide window and of a phone, light and
dark, and of the last calls of a rank, into FOLDER. It fails if the page does not show what happened or the browser complains.
"""
import pathlib
import re
import subprocess
import sys
import time

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

WIDE, PHONE = (1280, 900), (390, 844)


def start_browser():
    options = webdriver.ChromeOptions()
    for option in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)


def set_view(browser, size, dark):
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size is PHONE})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})


def picture(browser, folder, name):
    for kind, size, dark in ((f"{name}-wide", WIDE, False), (f"{name}-phone", PHONE, True)):
        set_view(browser, size, dark)
        time.sleep(0.6)
        browser.save_screenshot(str(folder / f"{kind}.png"))
        if browser.execute_script("return document.documentElement.scrollWidth > innerWidth"):
            raise SystemExit(f"{kind}: the page is wider than the window")
    set_view(browser, WIDE, False)


def wait_for(browser, selector, text, limit):
    """The text of the first such element that has this text, as soon as there is one."""
    begin = time.monotonic()
    script = "return [...document.querySelectorAll(arguments[0])].map((e) => e.innerText).find((t) => t.includes(arguments[1]))"
    while (found := browser.execute_script(script, selector, text)) is None:
        if time.monotonic() - begin > limit:
            raise SystemExit(f"{selector} did not show '{text}'")
        time.sleep(0.02)
    return found.replace("\n", "; ")


def main():
    bin_folder, program, folder = (pathlib.Path(word) for word in sys.argv[1:4])
    browser = start_browser()
    job = subprocess.Popen([bin_folder / "twillrun", "-n", "4", "--page", "--grace", "6", *sys.argv[4:], program, "straggles"],
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        address = None
        while address is None:
            line = job.stderr.readline()
            address = re.search(r"http://\S+", line)
        browser.get(address.group())
        wait_for(browser, ".tile", "rank 3", 10)
        time.sleep(1)
        picture(browser, folder, "steady")
        print("shown at first: " + wait_for(browser, ".tile.late", "rank 1", 60))
        picture(browser, folder, "late")
        print("shown at first: " + wait_for(browser, ".tile.dead", "rank 2", 60))
        picture(browser, folder, "dead")
        browser.execute_script("[...document.querySelectorAll('.tile')].find((e) => e.textContent.includes('rank 0')).click()")
        wait_for(browser, "dialog td", "allreduce", 5)
        picture(browser, folder, "calls")
        job.wait(30)
        wait_for(browser, "#alarm", "No answer since", 30)
        picture(browser, folder, "ended")
        faults = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE" and "ERR_CONNECTION" not in entry["message"]]
        if faults:
            raise SystemExit("\n".join(faults))
    finally:
        job.kill()
        browser.quit()


if __name__ == "__main__":
    main()
