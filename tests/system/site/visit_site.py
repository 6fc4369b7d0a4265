#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Look for faults of the built site, and print each as a line.

visit_site.py crawl FOLDER               links and anchors of all pages, and what pages would load from elsewhere
visit_site.py browse FOLDER PICTURES     Chromium: search, tutorials, the page of times, widths; screenshots into PICTURES
"""
import functools
import html.parser
import http.server
import os
import pathlib
import re
import shutil
import sys
import threading
import urllib.parse

WIDE, PHONE = (1440, 1000), (390, 844)
# Of which pages screenshots are made: the first that fits each pattern.
PICTURED = ("index.html", "tutorials/first*.html", "guides/*.html", "reference/c/twill.h.html", "reference/cpp.html", "reference/fortran.html",
            "reference/python.html", "reference/man/twill.7.html", "reference/man/twill_allreduce.3.html", "results/compare.html",
            "results/o*.html", "inside/*.html")
LOADED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src")}


class Page(html.parser.HTMLParser):
    """The anchors of a page, the links in it, and the addresses of what it loads."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links, self.loaded = {"", "top"}, set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.anchors.update(values[name] for name in ("id", "name") if values.get(name))
        for name in ("href", "src", "data"):
            if values.get(name) is None:
                continue
            loads = (tag, name) in LOADED or tag == "link" and not {"search", "index", "next", "prev"} & set(values.get("rel", "").split())
            (self.loaded if loads else self.links).add(values[name])


def crawl(folder):
    pages = {path.relative_to(folder).as_posix(): Page(path.read_text()) for path in sorted(folder.rglob("*.html")) if "_static" not in path.parts}
    for name, page in pages.items():
        for link in sorted(page.links | page.loaded):
            scheme, host, path, _, _, fragment = urllib.parse.urlparse(link)
            if scheme or host:
                if link in page.loaded and scheme != "data":
                    yield f"{name} loads {link}"
                continue
            target = os.path.normpath(os.path.join(os.path.dirname(name), urllib.parse.unquote(path))) if path else name
            if not (folder / target).is_file():
                yield f"{name} links to {link}, which is not there"
            elif target in pages and urllib.parse.unquote(fragment) not in pages[target].anchors:
                yield f"{name} links to {link}, an anchor that is not there"
    for style in sorted(folder.rglob("*.css")):
        for address in re.findall(r"url\([\"']?((?:https?:)?//[^)]*)", style.read_text()):
            yield f"{style.relative_to(folder)} loads {address}"
    if len(pages) < 50:
        yield f"there are only {len(pages)} pages"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


def start_browser():
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    options = webdriver.ChromeOptions()
    for option in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--disable-background-networking"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)


class Visit:
    """A browser on the site, and what it has found."""

    def __init__(self, browser, address, folder, pictures):
        self.browser, self.address, self.folder, self.pictures, self.faults = browser, address, folder, pictures, []

    def open(self, page):
        """Open a page afresh, and keep what the browser complains about."""
        self.browser.get(urllib.parse.urljoin(self.address, page))
        self.faults += [f"{page}: {entry['message']}" for entry in self.browser.get_log("browser") if entry["level"] == "SEVERE" and "favicon.ico" not in entry["message"]]

    def all(self, selector):
        return self.browser.find_elements("css selector", selector)

    def wait(self, condition, what):
        from selenium.common.exceptions import TimeoutException
        from selenium.webdriver.support.ui import WebDriverWait
        try:
            return WebDriverWait(self.browser, 60).until(lambda _: condition())
        except TimeoutException:
            self.faults.append(f"{what}: nothing within 60 s")
            return None

    def search(self, word="allreduce"):
        self.open("index.html")
        field = self.all(".sidebar-search")[0]
        field.send_keys(word)
        field.submit()
        hits = self.wait(lambda: self.all("#search-results li a"), f"search for {word}")
        if hits:
            hits[0].click()
            self.wait(lambda: self.all("article h1") and word in self.all("article")[0].text, f"the first hit for {word}")

    def tutorials(self):
        """Follow each link of the tutorials' text as a reader does: by a click."""
        self.open("index.html")
        pages = {link.get_property("href") for link in self.all(".sidebar-tree a") if "/tutorials/" in link.get_property("href")}
        if not pages:
            self.faults.append("there are no tutorials")
        for page in sorted(pages):
            self.open(page)
            links = {a.get_dom_attribute("href") for a in self.all("article a:not(.headerlink)") if a.get_property("href").startswith(self.address)}
            for link in sorted(links):
                self.open(page)
                self.browser.execute_script("arguments[0].click()", self.all(f'article a[href="{link}"]')[0])
                wanted = urllib.parse.urljoin(page, link)
                if self.browser.current_url != wanted or not self.all("article h1"):
                    self.faults.append(f"{page}: {link} leads to {self.browser.current_url}, {self.browser.title}")

    def times(self):
        """Change a field of the page of times by the keyboard, and hide a contender: the table changes."""
        from selenium.webdriver.common.keys import Keys
        self.open("results/compare.html")
        shown = self.all("#compare-table")[0].text
        fields = [select for select in self.all("#compare select") if len(select.find_elements("css selector", "option")) > 1]
        field = next((select for select in fields if select.get_attribute("name") == "collective"), fields[0])
        field.send_keys(Keys.ARROW_DOWN)
        self.wait(lambda: self.all("#compare-table")[0].text != shown, f"another {field.get_attribute('name')} in the page of times")
        columns = len(self.all("#compare-table thead th"))
        self.all("#compare-legend input:checked")[0].send_keys(Keys.SPACE)
        self.wait(lambda: len(self.all("#compare-table thead th")) == columns - 1, "hiding a contender")
        if not self.all("#compare-plot svg circle"):
            self.faults.append("the page of times has no plot")
        address = self.browser.current_url
        self.open(address)
        if self.browser.current_url != address:
            self.faults.append("the page of times forgets what its address says")

    def theme(self):
        """The button changes the colours, and a system that is set to dark colours gets them."""
        self.open("index.html")
        colours = []
        for _ in range(3):
            self.browser.execute_script("document.querySelector('.theme-toggle').click()")
            colours.append(self.browser.execute_script("return getComputedStyle(document.body).backgroundColor"))
        self.resize(WIDE, "dark")
        self.open("index.html")
        colours.append(self.browser.execute_script("return getComputedStyle(document.body).backgroundColor"))
        if len(set(colours)) != 2 or colours[3] == "rgb(255, 255, 255)":
            self.faults.append(f"the button for dark colours gives {colours}")

    def resize(self, size, scheme):
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE})
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def photograph(self):
        pages = [sorted(self.folder.glob(pattern))[0].relative_to(self.folder).as_posix() for pattern in PICTURED]
        for name, size, scheme in (("wide", WIDE, "light"), ("phone", PHONE, "light"), ("dark", WIDE, "dark"), ("phone-dark", PHONE, "dark")):
            self.resize(size, scheme)
            for page in pages:
                self.open(page)
                if name != "phone-dark" or "compare" in page:
                    self.browser.save_screenshot(str(self.pictures / f"{page[:-5].replace('/', '-')}-{name}.png"))

    def widths(self):
        """On a phone a page scrolls down and not sideways: wide tables and lines of code scroll by themselves."""
        self.resize(PHONE, "light")
        for path in sorted(self.folder.rglob("*.html")):
            page = path.relative_to(self.folder).as_posix()
            if "_static" in path.parts or (page.endswith(".3.html") and "allreduce" not in page):
                continue
            self.open(page)
            width = self.browser.execute_script("return document.scrollingElement.scrollWidth")
            if width > PHONE[0]:
                self.faults.append(f"{page} is {width} pixels wide on a phone of {PHONE[0]}")


def browse(folder, pictures):
    pictures.mkdir(parents=True, exist_ok=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    browser = start_browser()
    try:
        visit = Visit(browser, f"http://127.0.0.1:{server.server_port}/", folder, pictures)
        for step in (visit.search, visit.tutorials, visit.times, visit.theme, visit.widths, visit.photograph):
            step()
        return visit.faults
    finally:
        browser.quit()
        server.shutdown()


if __name__ == "__main__":
    faults = crawl(pathlib.Path(sys.argv[2])) if sys.argv[1] == "crawl" else browse(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
    for fault in dict.fromkeys(faults):
        print(fault)
