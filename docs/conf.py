"""How scripts/build_docs makes a site of README.md, docs/ and the examples' pages, by Sphinx. The root of the repository is the
folder of sources, so that links between pages are those that hold there."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent

project = "Quench"
version = release = re.search(r"^project\(quench VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(), re.M)[1]
root_doc = "README"
include_patterns = ["README.md", "CHANGELOG.md", "docs/*.md", "examples/README.md", "examples/clients/README.md"]
extensions = ["myst_parser"]
myst_heading_anchors = 6  # as GitHub names them
suppress_warnings = ["misc.highlighting_failure"]  # listings leave parts out
html_theme = "furo"
html_title = f"Quench {version}"
html_show_sphinx = False


def add_contents(app, page, source):
    """The pages in the order in which the rows of README.md link to them are the contents of the site."""
    if page == root_doc:
        rows = re.findall(r"^\| \[.*$", source[0], re.M)
        pages = [*re.findall(r"\]\((\S+?)\.md\)", "\n".join(rows)), "CHANGELOG"]
        source[0] += "\n```{toctree}\n:hidden:\n\n" + "\n".join(pages) + "\n```\n"


def setup(app):
    app.connect("source-read", add_contents)
    return {"parallel_read_safe": True}
