# SPDX-License-Identifier: Apache-2.0
"""A Sphinx extension: the folder of sources that Sphinx reads, and links from pages to other files of the repository.

stage() fills the folder with copies of docs/ and of the README, and with pages that are made here: those of the public headers, of
the Fortran module, of the Python package, of the manual pages and of the measured times. Markdown files elsewhere in the repository
to which a page links become pages below files/, and other files pages that show their text, so that every link works on the site
as it does in the repository."""
from __future__ import annotations

import ast
import html
import os
import pathlib
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree

from docutils import nodes
from pygments.lexers import get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx import addnodes
from sphinx.transforms import SphinxTransform
from sphinx.util.osutil import relative_uri

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
BUILD = pathlib.Path(os.environ["TWILL_BUILD"])
NOT_PAGES = {"conf.py", "CMakeLists.txt", "site"}
TITLES = {}  # by page: what titles_only() takes for env.tocs
NOT_LINKED = (nodes.title, nodes.reference, nodes.literal_block, nodes.raw, nodes.term, addnodes.pending_xref, addnodes.desc_signature)
LINK = re.compile(r"\]\(<?([^)\s>]+)|^\[[^\]]+\]:\s*(\S+)", re.M)


def target_of(page, link):
    """Return the file or folder of the repository that a link of a page names, or None. A folder with a README is its README."""
    name = link.partition("#")[0]
    if not name or ":" in name:
        return None
    folders = [page.parent] + [ROOT] * (page == DOCS / "index.md")  # which shows the README
    for path in [(folder / name).resolve() for folder in folders]:
        if path.exists() and ROOT in path.parents:
            return path / "README.md" if (path / "README.md").exists() else path
    return None


def source_of(path):
    """Return where Sphinx finds the page of a Markdown file, relative to its folder of sources."""
    if path == ROOT / "README.md":
        return "index.md"
    return str(path.relative_to(DOCS)) if DOCS in path.parents else f"files/{path.relative_to(ROOT)}"


def linked_files():
    """Return the Markdown files outside docs/ to which pages link, also through each other, and the other files that they name."""
    pages, others = set(), set()
    left = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *DOCS.rglob("*.md")]
    seen = set(left)
    while left:
        page = left.pop()
        if DOCS not in page.parents and page != ROOT / "README.md":
            pages.add(page)
        for match in LINK.finditer(page.read_text()):
            path = target_of(page, match[1] or match[2])
            if path is None or path in seen:
                continue
            seen.add(path)
            if path.suffix == ".md":
                left.append(path)
            elif DOCS not in path.parents:
                others.add(path)
    return pages, others


class FileLinks(SphinxTransform):
    """Resolve the links of Markdown pages to files of the repository. They are relative to the page's place there, which may differ
    from its place among Sphinx's sources."""

    default_priority = 100

    def apply(self, **kwargs):
        name = self.env.doc2path(self.env.docname, base=False)
        if not name.endswith(".md"):
            return
        page = ROOT / name[len("files/"):] if name.startswith("files/") else DOCS / name
        for node in self.document.findall(nodes.image):
            path = target_of(page, node["uri"])
            if path is not None and DOCS in path.parents:
                node["uri"] = f"/{path.relative_to(DOCS)}"
        for node in [n for n in self.document.findall() if isinstance(n, (addnodes.pending_xref, addnodes.download_reference))]:
            path = target_of(page, node["reftarget"]) if node.get("reftype") == "myst" else None
            if path is None:
                continue
            fragment = node["reftarget"].partition("#")[1:]
            if path.suffix == ".md":
                node["reftarget"] = os.path.relpath(source_of(path), os.path.dirname(name) or ".") + "".join(fragment)
            elif path in self.app.twill_files:
                uri = relative_uri(self.env.docname, f"files/{path.relative_to(ROOT)}.html")
                node.replace_self(nodes.reference("", "", *node.children, refuri=uri, internal=True))


class ManualLinks(SphinxTransform):
    """Make links of the manual pages that a text names, such as twill(7)."""

    default_priority = 800

    def apply(self, **kwargs):
        for text in list(self.document.findall(nodes.Text)):
            parts = re.split(r"([\w.-]+\([137]\))", text.astext())
            if len(parts) == 1 or isinstance(text.parent, NOT_LINKED) or isinstance(text.parent.parent, NOT_LINKED):
                continue
            made = []
            for part in parts:
                page = self.app.twill_manual.get(part[:-3] + "." + part[-2:-1])
                uri = page and relative_uri(self.env.docname, f"reference/man/{page}.html")
                made.append(nodes.reference("", part, refuri=uri, internal=True) if uri else nodes.Text(part))
            text.parent.replace(text, made)


def file_pages(app):
    """Yield a page for each file or folder that pages link to and that is no page itself."""
    for path in sorted(app.twill_files):
        name = str(path.relative_to(ROOT))
        if path.is_dir():
            text, language = "\n".join(sorted(p.name + "/" * p.is_dir() for p in path.iterdir())), "none"
        else:
            text = path.read_text(errors="replace")
            try:
                language = get_lexer_for_filename(name).aliases[0]
            except ClassNotFound:
                language = "none"
        body = app.builder.highlighter.highlight_block(text, language, force=True)
        yield f"files/{name}", {"title": name, "body": f"<h1>{html.escape(name)}</h1>\n{body}"}, "page.html"


# --- the public headers -------------------------------------------------------------------------


def titled(title, underline="="):
    return f"{title}\n{underline * len(title)}\n\n"


def without_twins(xml, to):
    """Copy Doxygen's XML without typedefs that have the name of their struct or enum: Sphinx takes them for the same thing."""
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    structs = {file.stem for file in xml.glob("struct*.xml")}
    for file in xml.glob("*.xml"):
        tree = ElementTree.parse(file)
        for section in tree.iter("sectiondef"):
            for member in section.findall("memberdef[@kind='typedef']"):
                kind, _, name = (member.findtext("definition") + "  ").split(" ")[1:4]
                if kind == "enum" or (kind == "struct" and "struct" + name.replace("_", "__") in structs):
                    section.remove(member)
        tree.write(to / file.name)


def c_pages(xml):
    """Return the page of each public header of C, by its name: what is in no group, then the groups."""
    groups, grouped = [], set()
    for file in xml.glob("group*.xml"):
        group = ElementTree.parse(file).find("compounddef")
        first = group.find(".//memberdef/location")
        groups.append((os.path.basename(first.get("file")), int(first.get("line")), group.findtext("title"), group.findtext("compoundname")))
        grouped.update(inner.text for inner in group.findall("innerclass"))
        grouped.update(member.findtext("name") for member in group.iter("memberdef"))
    pages = {}
    for file in sorted(xml.glob("twill*_8h.xml")):
        header = ElementTree.parse(file).find("compounddef")
        name = header.findtext("compoundname")
        text = titled(name) + f".. doxygenfile:: {name}\n   :sections: briefdescription detaileddescription\n\n"
        alone = [("struct", inner.text) for inner in header.findall("innerclass")]
        alone += [(member.get("kind"), member.findtext("name")) for member in header.iter("memberdef")]
        alone = [(kind, item) for kind, item in alone if item not in grouped]
        if alone:
            text += titled("Types and constants", "-")
        for kind, item in sorted(alone, key=lambda one: ["define", "enum", "struct", "typedef", "function"].index(one[0])):
            text += f".. doxygen{kind}:: {item}\n" + "   :members:\n" * (kind == "struct") + "\n"
        for of, _, title, group in sorted(groups):
            if of == name:
                text += titled(title, "-") + "".join(f".. doxygengroup:: {group}\n   :{part}-only:\n\n" for part in ("desc", "content"))
        pages[name] = text
    return pages


def cpp_page(xml):
    """Have Doxygen read twill.hpp, with the settings of the man 3 pages, and return the page."""
    shutil.rmtree(xml, ignore_errors=True)
    xml.parent.mkdir(parents=True, exist_ok=True)
    settings = (BUILD / "lib/man/Doxyfile").read_text() + f"""
FILE_PATTERNS = twill.h twill.hpp
OPTIMIZE_OUTPUT_FOR_C = NO
EXTRACT_ALL = YES
OUTPUT_DIRECTORY = "{xml.parent}"
XML_OUTPUT = {xml.name}
"""
    subprocess.run([os.environ["TWILL_DOXYGEN"], "-"], input=settings, text=True, check=True)
    return titled("C++: twill.hpp") + ".. doxygenfile:: twill.hpp\n   :project: cpp\n"


# --- Fortran ------------------------------------------------------------------------------------


def fortran_procedures(text, prefix):
    """Yield (name, comment, declaration) of the procedures of twill in a module: the lines that declare their arguments."""
    found = re.compile(r"((?:^ *!.*\n)*)^ *((?:integer\(c_int\) |integer )?(?:function|subroutine)) (\w+)\((.*?)\)(.*)\n((?:.*\n)*?) *end ", re.M)
    for comment, kind, name, arguments, result, body in found.findall(text):
        known = {*re.split(r",\s*", arguments), *re.findall(r"result\((\w+)\)", result)}
        lines = [line.strip() for line in body.split("\n") if "::" in line and {*re.split(r"[,\s()]+", line.partition("::")[2])} & known]
        if name.startswith("twill_") or prefix:
            yield (f"{prefix}{name}", re.sub(r"^ *! ?", "", comment, flags=re.M).strip(),
                   "\n    ".join([f"{kind} {prefix}{name}({arguments}){result}", *lines]))


def fortran_page():
    """Return the page of the Fortran module, in Markdown."""
    text = (ROOT / "lib/fortran/twill.F90").read_text()
    calls = (ROOT / "lib/fortran/twill_calls.inc").read_text()
    intro = re.match(r"(?:!.*\n)+", text)[0].replace("! SPDX-License-Identifier: Apache-2.0\n", "")
    intro = re.sub(r"^!( {5})?( ?)(?=\S)", lambda m: "    " if m[1] else "", intro, flags=re.M)
    intro = re.sub(r"((?:^    .*\n)+)", r"\n\1\n", intro, flags=re.M)
    base = text[text.index("module twill_base"):]
    constants = re.findall(r"^    integer\(c_int\), parameter, public ::(?:.*&\n)*.*\n", base, flags=re.M)
    types = re.findall(r"^((?: *!.*\n)+)( *type, public :: (?:.*\n)*?) *end type", base, flags=re.M)
    elements = ", ".join(f"`{element}`" for element in re.findall(r"#define ELEMENT (.*)", text))
    page = f"# Fortran: module twill\n\n{intro}\n## Constants\n\n```fortran\n" + re.sub(r"^    ", "", "".join(constants), flags=re.M) + "```\n"
    page += "\n## Types\n"
    for comment, declared in types:
        page += f"\n{re.sub(r'^ *! ?', '', comment, flags=re.M)}\n```fortran\n{re.sub(r'^    ', '', declared, flags=re.M)}end type\n```\n"
    for title, procedures in (("Communicators and requests", fortran_procedures(base[base.index("\ncontains"):base.index("\nend module")], "")),
                              ("Collectives and messages", fortran_procedures(calls[calls.index("\ncontains"):], "twill_"))):
        page += f"\n## {title}\n"
        page += f"\n`ELEMENT` is one of {elements}.\n" * (title == "Collectives and messages")
        for name, comment, declared in procedures:
            whole = name.replace("_in_place", "")
            page += f"\n### {name.replace('_in_place', ', in place')}\n\n{comment}\n\n```fortran\n{declared.replace(name, whole)}\n```\n"
    return page


# --- Python -------------------------------------------------------------------------------------

PYTHON = {"comm": "Communicators", "context": "Contexts", "training": "Gradient sets", "job": "Jobs", "_declarations": "Enumerations",
          "errors": "Exceptions"}


def python_page():
    """Return the page of the Python package: what it exports, a section for each of its modules, and its other modules."""
    text = (ROOT / "lib/python/twill/__init__.py").read_text()
    exported = ast.literal_eval(re.search(r"__all__ = (\[.*?\])", text, re.S)[1])
    modules = {name: re.findall(r"\w+", names) for name, names in re.findall(r"^from \.(\w+) import (\([^)]*\)|.*)$", text, re.M)}
    page = titled("Python: package twill") + ".. automodule:: twill\n\n"
    for module in sorted(modules, key=["comm", "context", *(m for m in modules if m not in PYTHON), *PYTHON].index):
        names = [name for name in modules[module] if name in exported]
        page += titled(PYTHON.get(module, module.capitalize()), "-") * bool(names)
        for name in names:
            kind = "data" if name.isupper() else "exception" if module == "errors" else "class" if name[0].isupper() else "function"
            page += f".. auto{kind}:: twill.{name}\n"
            if kind in ("class", "exception"):
                page += "   :members:\n   :undoc-members:\n   :inherited-members: int, tuple, Exception, TwillError\n"
            page += "\n"
    for module in ("torch", "lightgbm", "ray"):
        page += titled(f"twill.{module}", "-") + f".. automodule:: twill.{module}\n   :members:\n\n"
    return page


def docstring(app, what, name, value, options, lines):
    """Make reStructuredText of a docstring: its text has no marks but `code`, and code is indented by four columns."""
    code = False
    lines[:] = [line for line in lines if not line.startswith("Alias for field number ")]  # Python's, of named tuples
    for i, line in enumerate(lines):
        indented = line.startswith("    ") and (code or i == 0 or not lines[i - 1])
        if indented and not code:
            lines[i] = f"::\n\n{line}"
        elif not indented and line:
            lines[i] = re.sub(r"([\\*|_])", r"\\\1", re.sub("`([^`]*)`", r"``\1``", re.sub("^ {4}", "", line)))
        code = indented or (code and not line)
    lines[:] = "\n".join(lines).split("\n")


# --- manual pages -------------------------------------------------------------------------------


def manual_pages(folder):
    """Return the manual pages, by their names such as twill.7, as reStructuredText with the HTML that mandoc makes. Return also
    the page of every name that has one."""
    files = {f.name: f for section in ("man1", "man7", "man3") for f in sorted((folder / section).iterdir())}
    links = {name: pathlib.Path(text[4:].strip()).name for name, text in ((n, f.read_text()) for n, f in files.items()) if text.startswith(".so ")}
    pages = {}
    for name, file in files.items():
        if name in links:
            continue
        made = subprocess.run(["mandoc", "-Thtml", "-Ofragment,man=%N.%S", str(file)], capture_output=True, text=True, check=True).stdout
        made = re.sub(r'(?s).*<div class="manual-text">(.*)</div>.*', r"\1", re.sub("</?section.*?>", "", made))
        made = re.sub(r'<a class="Xr" href="(.*?)">(.*?)</a>', lambda m: f'<a class="Xr" href="{links.get(m[1], m[1])}.html">{m[2]}</a>'
                      if m[1] in files else m[2], made)
        title, section = name.rsplit(".", 1)
        pages[name] = ":orphan:\n\n" * (section == "3") + titled(f"{title}({section})")
        _, *parts = re.split(r'(?s)<h([12]) class="S[hs]"(?: id="(.*?)")?>(.*?)</h\1>', made)
        for level, anchor, heading, body in zip(*[iter(parts)] * 4):
            heading = html.unescape(re.sub(r"<.*?>", "", " ".join(heading.split())))
            heading = heading if level == "2" else heading.capitalize()
            pages[name] += titled(re.sub(r"([*_`\\|])", r"\\\1", heading) + " ", "-" if level == "1" else "~")
            body = f'<div class="manual-text"><span id="{anchor}"></span>{body}</div>'
            pages[name] += ".. raw:: html\n\n" + re.sub("^", "   ", body, flags=re.M) + "\n\n"
    return pages, {name: links.get(name, name) for name in files}


MANUAL = titled("Manual pages") + """
.. toctree::
   :glob:
   :titlesonly:

   man/twill.7
   man/*.7
   man/*.1

Of the public headers' functions:

.. hlist::
   :columns: 3

"""

# --- the times ----------------------------------------------------------------------------------

COMPARE = titled("Compare times") + """
Medians of all comparisons that were measured, in microseconds a call. The other pages say how.

.. raw:: html
   :file: compare.html
"""


def stage(app):
    """Fill Sphinx's folder of sources. Files that are as they should be keep their time: Sphinx reads again what has changed."""
    source = pathlib.Path(app.srcdir)
    pages, app.twill_files = linked_files()
    made = {"../README.md": (ROOT / "README.md").read_bytes()}
    for path in DOCS.rglob("*"):
        if path.is_file() and path.relative_to(DOCS).parts[0] not in NOT_PAGES:
            made[str(path.relative_to(DOCS))] = path.read_bytes()
    for path in pages:
        made[source_of(path)] = b"---\norphan: true\n---\n" + path.read_bytes()
    without_twins(BUILD / "lib/man/xml", BUILD / "site-xml/c")
    headers = c_pages(BUILD / "site-xml/c")
    texts = {f"reference/c/{name}.rst": text for name, text in headers.items()}
    texts["reference/c.rst"] = titled("C: public headers") + ".. toctree::\n   :titlesonly:\n\n" + "".join(f"   c/{name}\n" for name in headers)
    texts["reference/cpp.rst"] = cpp_page(BUILD / "site-xml/cpp")
    texts["reference/fortran.md"] = fortran_page()
    texts["reference/python.rst"] = python_page()
    manual, app.twill_manual = manual_pages(BUILD / "share/man")
    texts.update((f"reference/man/{name}.rst", text) for name, text in manual.items())
    texts["reference/manual.rst"] = MANUAL + "".join(f"   * :doc:`man/{name}`\n" for name in manual if name.endswith(".3"))
    texts["results/compare.rst"] = COMPARE
    names = sorted(path.stem for path in (DOCS / "results").glob("*.md") if path.stem != "index")
    made["results/index.md"] += ("\n```{toctree}\n:hidden:\n\n" + "\n".join(names) + "\n```\n").encode()
    texts["results/compare.html"] = (DOCS / "site/compare.html").read_text()
    texts["_data/speed.js"] = f"const speed = {(DOCS / 'results/speed.json').read_text()}"
    made.update((name, text.encode()) for name, text in texts.items())
    for old in source.rglob("*"):
        if old.is_file() and str(old.relative_to(source)) not in made:
            old.unlink()
            (pathlib.Path(app.outdir) / old.relative_to(source)).with_suffix(".html").unlink(missing_ok=True)
    for name, content in made.items():
        path = source / name
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    app.config.html_static_path.append(str(source / "_data"))


def titles_only(app, pagename, templatename, context, doctree):
    """Have the tree beside a page made of the titles of pages. Sphinx copies all sections and functions of all pages first."""
    env, compute = app.env, context["toctree"]
    if not TITLES:
        for name, toc in env.tocs.items():
            TITLES[name] = toc.deepcopy()
            for item in [i for i in TITLES[name].findall(nodes.list_item) if i.parent is not TITLES[name]]:
                if not any(item.findall(addnodes.toctree)):
                    item.parent.remove(item)

    def toctree(**options):
        whole, env.tocs = env.tocs, TITLES
        try:
            return compute(**options)
        finally:
            env.tocs = whole

    context["toctree"] = toctree


def mend_theme(app, error):
    """Debian's Furo wants a web server that has Debian's /javascript, imports what is no module, and has lost its rule for systems
    that are set to dark colours."""
    static = pathlib.Path(app.outdir) / "_static"
    style, script = static / "styles/furo.css", static / "scripts/furo.js"
    text, normal = style.read_text(), "@import url(/javascript/normalize.css/normalize.css);"
    if normal in text:
        text = text.replace(normal, pathlib.Path("/usr/share/javascript/normalize.css/normalize.css").read_text())
    if "prefers-color-scheme" not in text:
        dark = re.search(r'body\[data-theme="dark"\] (\{[^}]*\})', text)
        text += f'@media (prefers-color-scheme: dark) {{ body[data-theme="auto"] {dark[1]} }}'
    style.write_text(text)
    text = script.read_text()
    script.write_text(text.replace('import Gumshoe from "./gumshoe-patched.js";', (static / "scripts/gumshoe-patched.js").read_text()))


def setup(app):
    app.connect("builder-inited", stage)
    app.connect("html-collect-pages", file_pages)
    app.connect("html-page-context", titles_only, priority=400)
    app.connect("build-finished", mend_theme)
    app.connect("autodoc-process-docstring", docstring)
    app.add_transform(FileLinks)
    app.add_transform(ManualLinks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
