#!/usr/bin/env python3
"""README, docs/ and the READMEs of folders: short enough, without dead links, and true where they repeat what the code says."""

import importlib.machinery
import importlib.util
import os
import re
import textwrap
import unittest

import support
from support import yaml

ROOT = support.ROOT
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [ROOT / "README.md", *DOCS, ROOT / "examples/README.md", ROOT / "examples/clients/README.md",
         *sorted(path for top in ("common", "services") for path in (ROOT / top).rglob("README.md"))]
SOURCES = ("common", "services", "proto", "tests", "bench", "scripts", "docker", "examples")
MAX_COLUMNS = 120
README_LINES, FOLDER_LINES = 150, 30


def page(name):
    return (ROOT / name).read_text()


def relative(path):
    return str(path.relative_to(ROOT))


def without_code(text):
    """Markdown without its fenced blocks and code spans."""
    return re.sub(r"`[^`]*`", "", re.sub(r"^( *)```.*?^ *```$", "", text, flags=re.M | re.S))


def headings(text):
    prose = re.sub(r"^( *)```.*?^ *```$", "", text, flags=re.M | re.S)
    return re.findall(r"^#+ (.*)$", prose, re.M)


def anchor(heading):
    """GitHub's name of a heading in links."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def rows(text, first):
    """Cells of the table whose header begins with `first`."""
    table = re.search(rf"^ *\| {re.escape(first)} .*\n *\|[-|]+\n((?: *\|.*\n)+)", text, re.M)[1]
    return [[cell.strip() for cell in line.strip(" |\n").split(" | ")] for line in table.splitlines()]


def catalogue(path, macro):
    """First arguments of a table's rows."""
    return re.findall(rf"^{macro}\(\"?(\w+)", page(path), re.M)


def text_files():
    """Every source file that may have comments."""
    for top in SOURCES:
        for path in sorted((ROOT / top).rglob("*")):
            if not path.is_file() or {"node_modules", "__pycache__"} & set(path.parts):
                continue
            try:
                yield path, path.read_text()
            except UnicodeDecodeError:
                continue


def compile_options():
    """Rows of options.def, as the Python package has them."""
    spec = importlib.util.spec_from_file_location("stage", ROOT / "python/stage.py")
    stage = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stage)
    return stage.compile_options("cc")


def option_line(row):
    """A row of options.def in the table of docs/compiler.md."""
    number = f"{row['low']} to {row['high']}" if row["high"] is not None else f"{row['low']} or more"
    values = {"switch": "switch", "consent": "switch", "choice": ", ".join(f"`{name}`" for name in row["choices"]), "text": "a text", "names": "names, one per line",
              "json": "a JSON object"}.get(row["kind"], f"{number} (default {row['default']})")
    other = {"switch": "=False", "consent": "=True"}.get(row["kind"], "")
    keyword = f"`{row['keyword']}{other}`"
    return f"| `{row['flag']}` | `{row['field']}` | {keyword} | {values} | {'yes' if row['uuid'] else 'no'} |\n"


def layers():
    """scripts/check_layers as a module."""
    loader = importlib.machinery.SourceFileLoader("check_layers", str(ROOT / "scripts/check_layers"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_layers", loader))
    loader.exec_module(module)
    return module


class Form(unittest.TestCase):
    def test_readme_is_short(self):
        self.assertLessEqual(len(page("README.md").splitlines()), README_LINES)

    def test_lines_are_short(self):
        long = [f"{relative(path)}:{number}: {len(line)} columns" for path in PAGES if path.parent != ROOT / "examples/clients"
                for number, line in enumerate(path.read_text().splitlines(), 1) if len(line) > MAX_COLUMNS]
        self.assertEqual([], long)

    def test_first_screen_has_both_commands(self):
        screen = "\n".join(page("README.md").splitlines()[:24])
        self.assertIn("./scripts/quickstart", screen)
        self.assertIn("./scripts/test", screen)

    def test_readme_leads_to_every_page(self):
        linked = re.findall(r"\]\(([^)#]+)", page("README.md"))
        self.assertEqual([], [relative(path) for path in DOCS if relative(path) not in linked])


class References(unittest.TestCase):
    def test_links_resolve(self):
        dead = []
        for path in PAGES:
            for target in re.findall(r"\]\(([^)\s]+)\)", without_code(path.read_text())):
                if re.match(r"\w+:", target):
                    continue
                name, _, fragment = target.partition("#")
                file = (path.parent / name).resolve() if name else path
                if not file.exists():
                    dead.append(f"{relative(path)}: {target}")
                elif fragment and fragment not in map(anchor, headings(file.read_text())):
                    dead.append(f"{relative(path)}: {target}: no such heading")
        self.assertEqual([], dead)

    def test_paths_exist(self):
        missing = []
        for path in PAGES:
            for name in re.findall(rf"(?<![\w./-])((?:{'|'.join(SOURCES)}|docs)/[\w./-]*\w)", path.read_text()):
                if not (ROOT / name).exists() and not (path.parent / name).exists():
                    missing.append(f"{relative(path)}: {name}")
        self.assertEqual([], missing)

    def test_file_names_exist(self):
        """Names without a folder, in backticks: of some file of the repository, in a folder's README of one beneath it."""
        known = {file.name for top in SOURCES for file in (ROOT / top).rglob("*")} | {file.name for file in ROOT.iterdir()}
        made = {"model.h", "model.c", "calibration.stats", "token"}  # by the program, or by the reader
        missing = []
        for path in PAGES:
            near = known if path.parent in (ROOT, ROOT / "docs") else {file.name for file in path.parent.rglob("*")} | known
            for name in re.findall(r"`([\w.-]+\.(?:h|cc|c|def|py|proto|yaml|tsv|md))`", path.read_text()):
                if name not in near | made:
                    missing.append(f"{relative(path)}: {name}")
        self.assertEqual([], missing)

    def test_comments_cite_pages_that_exist(self):
        dead = []
        for path, text in text_files():
            if path == ROOT / "tests/ops/docs_test.py":
                continue
            for found in re.finditer(r"(?<![\w.*/-])([\w./-]*\w\.md)\b(?!\.)(?:,? \"([^\"\n]+)\")?", text):
                places = [parent / found[1] for parent in (path.parent, *path.parent.parents) if parent.is_relative_to(ROOT)]
                there = [place for place in places if place.is_file()]
                if not there:
                    dead.append(f"{relative(path)}: {found[1]}")
                elif found[2] and found[2] not in headings(there[0].read_text()):
                    dead.append(f"{relative(path)}: {found[1]} has no section \"{found[2]}\"")
        self.assertEqual([], dead)

    def test_comments_cite_no_papers_that_are_elsewhere(self):
        """Pages known by a name only: they are where the reader is not."""
        words = re.compile(r"\b(?:the|a|our) (?:design|kernel) (?:page|note|doc\w*|study)\b|\bnotes? in \w+/|\bdesign study\b|"
                           r"\b(?:the|our) wiki\b|\bREADME,? \"", re.I)
        cited = [f"{relative(path)}: {found[0]}" for path, text in text_files() if path != ROOT / "tests/ops/docs_test.py"
                 for found in words.finditer(text)]
        self.assertEqual([], cited)


def within(name, folders):
    return any(name == folder or name.startswith(folder + "/") for folder in folders)


def used_by(folder):
    """Folders of this repository whose headers the files of `folder` include."""
    return {header.rpartition("/")[0] for file in folder.iterdir() if file.suffix in (".cc", ".c", ".h")
            for header in re.findall(r'^#include "((?:common|services|quench)/[^"]+)"', file.read_text(), re.M)}


class Folders(unittest.TestCase):
    def folders(self):
        for top in ("common", "services"):
            for folder in sorted(path for path in (ROOT / top).rglob("*") if path.is_dir()):
                if any(file.suffix in (".cc", ".c", ".h") for file in folder.iterdir()):
                    yield folder

    def test_every_folder_says_what_it_is_for(self):
        folders = list(self.folders())
        self.assertIn(ROOT / "services/codegen/kernels", folders)
        self.assertEqual([], [relative(folder) for folder in folders if not (folder / "README.md").is_file()])

    def test_they_are_short(self):
        for folder in self.folders():
            lines = len((folder / "README.md").read_text().splitlines())
            self.assertLessEqual(lines, FOLDER_LINES, relative(folder))

    def test_they_say_what_may_be_used_and_where_a_change_goes(self):
        arrows = layers().ARROWS
        layer_of = layers().layer_of
        for folder in self.folders():
            name = relative(folder)
            text = (folder / "README.md").read_text()
            self.assertRegex(text, rf"\A# {re.escape(name)}\n\n[^#\s]", name)
            self.assertRegex(text, r"(?m)^## Where a change goes$", name)
            may_use = re.search(r"^## May use\n\n(.*?)(?:\n\n|\Z)", text, re.M | re.S)
            self.assertIsNotNone(may_use, name)
            told = set(re.findall(r"`([\w/]+)`", may_use[1].split(". ")[0]))
            allowed = set(arrows[layer_of(name)])
            if name in arrows:
                self.assertEqual(allowed, told, name)
                continue
            self.assertEqual([], [each for each in told if not within(each, allowed | {layer_of(name)})], name)
            self.assertEqual([], [each for each in used_by(folder) if not within(each, told | {name})], name)


class Compiler(unittest.TestCase):
    PAGE = page("docs/compiler.md")

    def test_passes_in_their_order(self):
        source = page("common/passes/pipeline.cc")
        standard = re.findall(r'"(\w+)"', re.search(r"kPipeline\[\] = \{(.*?)\};", source, re.S)[1])
        codegen = re.findall(r'^    \{"(\w+)", \w+\}', re.search(r"kCodegenPasses\[\] = \{(.*?)\};", source, re.S)[1], re.M)
        tables = re.findall(r"^\| pass \| does \|\n\|[-|]+\n((?:\|.*\n)+)", self.PAGE, re.M)
        told = [re.findall(r"^\| `(\w+)`", table, re.M) for table in tables]
        self.assertEqual([list(dict.fromkeys(standard)), codegen], told)

    def test_every_pass_and_kernel(self):
        # "MatMul" is `matmul`, "GpuProduct" is `gpu_product`.
        kernels = [re.sub("^gpu", "gpu_", name.lower()) for name in catalogue("services/codegen/kernels/kernels.def", "QUENCH_KERNEL")]
        table = page("common/passes/passes.def")
        passes = re.findall(r"^QUENCH_PASS(?:_OF\(\w+, |\()(\w+)", table, re.M) + catalogue("common/passes/passes.def", "QUENCH_PASS_GROUP")
        names = passes + kernels
        self.assertIn("requantize", names)
        self.assertIn("fuse_groups", names)
        self.assertIn("conv", names)
        self.assertEqual([], [name for name in names if f"`{name}`" not in self.PAGE])

    def test_every_option_of_a_compilation(self):
        """QUENCH_UPDATE_GOLDENS=1 rewrites the table."""
        expected = "".join(map(option_line, compile_options()))
        table = re.search(r"^\| `quench compile` \| field .*\n\|[-|]+\n((?:\|.*\n)*)", self.PAGE, re.M)
        if os.environ.get("QUENCH_UPDATE_GOLDENS"):
            (ROOT / "docs/compiler.md").write_text(self.PAGE[:table.start(1)] + expected + self.PAGE[table.end(1):])
        else:
            self.assertEqual(expected, table[1])


class Quantizing(unittest.TestCase):
    def test_every_method(self):
        told = [row[0].replace(" (default)", "").strip("`") for row in rows(page("docs/quantizing.md"), "method")]
        self.assertEqual(catalogue("services/quantizer/methods/methods.def", "QUENCH_METHOD"), told)


class Readme(unittest.TestCase):
    def test_conformance_is_counted(self):
        cases = [line.split("\t") for line in page("tests/conformance/manifest.tsv").splitlines() if not line.startswith("#")]
        passed = [case for case in cases if case[1:] == ["pass", "pass"]]
        told = re.search(r"(\d+) of the (\d+) ONNX operator cases", page("README.md"))
        self.assertEqual((len(passed), len(cases)), (int(told[1]), int(told[2])))


class Formats(unittest.TestCase):
    PAGE = page("docs/formats.md")

    def test_every_format(self):
        told = [row[0].strip("`") for row in rows(self.PAGE, "format")]
        self.assertEqual([name.lower() for name in catalogue("services/importer/frontends.def", "QUENCH_FRONTEND")], told)

    def test_operators_of_tflite_that_are_refused(self):
        schema = page("services/importer/tflite/schema.fbs")
        names = re.findall(r"\b([A-Z]\w+)\s*=\s*\d+", re.search(r"enum BuiltinOperator : int32 \{(.*?)\}", schema, re.S)[1])
        taken = set(catalogue("services/importer/tflite/tflite_ops.def", "QUENCH_TFLITE_OP"))
        reader = page("services/importer/tflite/entry.cc")
        taken |= set(re.findall(r'"(\w+)"', re.search(r"kNames = \{(.*?)\};", reader, re.S)[1]))
        taken |= {"CUSTOM", "DELEGATE", "PLACEHOLDER_FOR_GREATER_OP_CODES"}
        missing = {name for name in names if name not in taken and not name.startswith("STABLEHLO")}
        told = re.search(r"^- These builtin operators:\n(.*)", self.PAGE, re.M | re.S)[1]
        self.assertEqual(missing, set(re.findall(r"`(\w+)`", told)))


class Developing(unittest.TestCase):
    def test_layout_lists_every_folder(self):
        tree = re.search(r"^## Layout\n.*?```\n(.*?)```", page("docs/developing.md"), re.M | re.S)[1]
        for top in ("common", "services"):
            part = re.search(rf"^{top}/\n((?:  .*\n)+)", tree, re.M)[1]
            told = set(re.findall(r"^  (\w+)/", part, re.M))
            there = {path.name for path in (ROOT / top).iterdir() if path.is_dir()}
            self.assertEqual(there, told, top)

    def test_every_table_of_a_catalogue(self):
        named = set(re.findall(r"\b(\w+\.def)\b", page("docs/developing.md")))
        self.assertEqual(set(), {path.name for top in ("common", "services") for path in (ROOT / top).rglob("*.def")} - named)


class Operating(unittest.TestCase):
    PAGE = page("docs/operating.md")
    CONFIG = page("proto/quench/config/v1/config.proto")

    def messages(self):
        """Message -> {field: type}"""
        text = re.sub(r"//.*", "", self.CONFIG)
        return {found[1]: dict(reversed(field) for field in re.findall(r"([\w.]+) (\w+) = \d+;", found[2]))
                for found in re.finditer(r"^message (\w+) \{(.*?)^\}", text, re.M | re.S)}

    def test_ports(self):
        told = {row[0]: (row[1].strip("`"), int(row[2]), int(row[3])) for row in rows(self.PAGE, "service")}
        self.assertEqual({name: (f"quench-{name}", port, port + support.METRICS_PORT_OFFSET) for name, port in support.SERVICES.items()}, told)

    def test_every_configuration_field(self):
        fields = {field for message in self.messages().values() for field in message}
        self.assertLess({"server", "listen", "high_bytes"}, fields)
        self.assertEqual([], sorted(field for field in fields if not re.search(rf"`(\w+\.)*{field}[`.]", self.PAGE)))

    def test_no_configuration_field_that_is_not(self):
        known = self.messages()
        roots = {**known["GatewayConfig"], **known["ImporterConfig"]}
        for name, *_ in rows(self.PAGE, "field"):
            path = name.strip("`").split(".")
            self.assertIn(path[0], roots, name)
            kind = roots[path[0]]
            for part in path[1:]:
                self.assertIn(part, known[kind], name)
                kind = known[kind][part]

    def test_every_state_of_a_workflow(self):
        states = re.findall(r"^  STATE_(\w+) = [1-9]", page("proto/quench/gateway/v1/workflows.proto"), re.M)
        self.assertEqual(5, len(states))
        self.assertEqual([], [state for state in states if state not in self.PAGE])

    def test_every_alert_with_its_severity(self):
        told = dict(re.findall(r"^### (Quench\w+)\n\n\*\*(\w+)\*\*: ", self.PAGE, re.M))
        rules = [rule for path in (support.DOCKER / "prometheus/rules").glob("*.yml")
                 for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]
        self.assertEqual({rule["alert"]: rule["labels"]["severity"] for rule in rules if "alert" in rule}, told)

    def test_every_metric_with_its_labels(self):
        told = {row[0].strip("`"): (row[1], row[2]) for row in rows(self.PAGE, "metric")}
        expected = {}
        for name, row in support.metrics_table().items():
            if not name.endswith(("_bucket", "_sum")) or row.kind != "Histogram":
                family = name.removesuffix("_count") if row.kind == "Histogram" else name
                expected[family] = (row.kind.lower(), ", ".join(row.labels))
        self.assertEqual(expected, told)

    def test_the_certificate_goes_where_it_says(self):
        snippet = yaml.safe_load(textwrap.dedent(re.search(r"```\n( *filter_chains.*?)```", self.PAGE, re.S)[1]))
        chain = yaml.safe_load((support.DOCKER / "envoy/envoy.yaml").read_text())["static_resources"]["listeners"][0]["filter_chains"][0]
        self.assertEqual(set(snippet["filter_chains"][0]), set(chain) | {"transport_socket"})
        socket = snippet["filter_chains"][0]["transport_socket"]["typed_config"]["common_tls_context"]
        self.assertEqual(["h2"], socket["alpn_protocols"])


if __name__ == "__main__":
    support.main("ops_docs")
