# SPDX-License-Identifier: Apache-2.0
"""Sphinx's settings. `cmake --build build --target site` builds the site in build/site, without a network."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ["TWILL_BUILD"]  # the build folder of CMake
sys.path[:0] = [os.path.join(HERE, "site"), os.path.join(BUILD, "python")]
sys.dont_write_bytecode = True  # the package in the build folder is made of links to the source

project = "twill"
html_title = "twill"
html_theme = "furo"
html_static_path = [os.path.join(HERE, "site", "static")]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_show_copyright = False
toc_object_entries_show_parents = "hide"
highlight_language = "none"
pygments_style = "friendly"
pygments_dark_style = "monokai"

extensions = ["myst_parser", "breathe", "sphinx.ext.autodoc", "sphinx_copybutton", "site_pages"]
myst_heading_anchors = 4
copybutton_prompt_text = "$ "

breathe_projects = {"c": os.path.join(BUILD, "site-xml", "c"), "cpp": os.path.join(BUILD, "site-xml", "cpp")}
breathe_default_project = "c"
breathe_domain_by_extension = {"h": "c", "hpp": "cpp"}
breathe_show_include = False

autodoc_mock_imports = ["twill._library", "numpy", "torch", "ray", "pybind11"]  # nothing of these is needed for docstrings
autodoc_member_order = "groupwise"
autodoc_preserve_defaults = True
