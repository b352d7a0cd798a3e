"""The page of `quench analyse --report` in headless Chromium: no console message, drawn soon, and what can be done with it."""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST_BYTES, MOST_MILLISECONDS = 5_000_000, 2000
# Actions of a reader, and their effects. Added to a copy of the page, whose policy would not run it.
ACTS = """
const found = {};
const rows = () => document.querySelectorAll('[data-layers="0"] tbody tr');
const type = (place, text) => {
  const input = document.querySelector(place + ' input');
  input.value = text;
  input.dispatchEvent(new Event('input'));
};
const press = (target, key) => target.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true, cancelable: true}));
const canvas = document.querySelector('canvas'), details = document.querySelector('.details');
requestAnimationFrame(() => requestAnimationFrame(() => {
  found.milliseconds = performance.now();
  const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  found.drawn = pixels.some(value => value !== 0);
  found.rows = rows().length;
  type('[data-layers="0"]', 'stage1/block26/left/fc');
  found.searched = rows().length;
  found.deepest = rows()[rows().length - 1].textContent;
  type('[data-layers="0"]', '');
  const header = [...document.querySelectorAll('[data-layers="0"] th button')].find(each => each.textContent === 'layer');
  header.click(); header.click();
  found.sorted = rows()[1].querySelector('td').textContent;
  rows()[1].focus();
  press(document.activeElement, 'ArrowLeft');
  found.closed = rows()[1].getAttribute('aria-expanded');
  found.fewer = rows().length;
  press(document.activeElement, 'ArrowRight');
  found.opened = rows()[1].getAttribute('aria-expanded');
  press(document.activeElement, 'ArrowDown');
  found.focused = document.activeElement === rows()[2];
  press(canvas, 'j'); press(canvas, 'j');
  found.stepped = details.textContent;
  type('[data-graph="0"]', 'stage0/block3/');
  found.matches = document.querySelector('[data-graph="0"] .bar span').textContent;
  found.chosen = details.textContent;
  const search = document.querySelector('[data-graph="0"] input'), exact = details.querySelector('dd').textContent;
  type('[data-graph="0"]', exact.slice(0, -1));
  type('[data-graph="0"]', exact);
  press(search, 'Enter');
  found.exact = details.querySelector('dd').textContent === exact;
  document.body.innerHTML = '';
  document.title = JSON.stringify(found);
}));
"""


def chromium():
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    return None


def browse(program, page, folder):
    """The document when it stands still, and what the console said."""
    run = subprocess.run(
        [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={folder}/profile",
         "--enable-logging=stderr", "--window-size=1500,1000", "--virtual-time-budget=20000", "--dump-dom", page.as_uri()],
        capture_output=True, text=True, timeout=180, check=True)
    return run.stdout, [line for line in run.stderr.splitlines() if "CONSOLE" in line]


def act(program, page, folder):
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text())
    copy = folder / "acted.html"
    copy.write_text(text.replace("</body>", f"<script>{ACTS}</script></body>"))
    dom, _ = browse(program, copy, folder)
    title = re.search(r"<title>(\{.*?\})</title>", dom, re.S)
    if not title:
        return {}
    return json.loads(title.group(1).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))


def problems_of(program, page, folder):
    problems = []
    if page.stat().st_size > MOST_BYTES:
        problems.append(f"{page.stat().st_size} bytes, at most {MOST_BYTES}")
    dom, console = browse(program, page, folder)
    problems += console
    if 'role="treegrid"' not in dom:
        problems.append("the script did not run")
    tries = [act(program, page, folder) for _ in range(3)]
    found = tries[-1]
    print(json.dumps(found))
    if min(each.get("milliseconds", 1e9) for each in tries) > MOST_MILLISECONDS:
        problems.append(f"drawn in {[each.get('milliseconds') for each in tries]} ms")
    wanted = {"drawn": True, "searched": 5, "closed": "false", "opened": "true", "focused": True, "matches": "1 of 10",
              "exact": True}
    problems += [f"{key}: {found.get(key)}, not {value}" for key, value in wanted.items() if found.get(key) != value]
    for key, part in (("deepest", "fcMatMul"), ("sorted", "stage7"), ("stepped", "/encoder/stage0/block0/left/fc"),
                      ("chosen", "/encoder/stage0/block3/left/fc")):
        if part not in found.get(key, ""):
            problems.append(f"{key}: `{part}` is not in `{found.get(key)}`")
    if not found.get("fewer", 1e9) < found.get("rows", 0):
        problems.append(f"{found.get('rows')} rows, {found.get('fewer')} with a scope closed")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quench", required=True)
    args = parser.parse_args()
    program = chromium()
    try:
        import onnx  # noqa: F401  the model is written with it
    except ImportError:
        program = None
    if program is None:
        print("skipped: no Chromium, or no onnx to write a model with")
        return 77
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model, page = folder / "many.onnx", folder / "many.html"
        subprocess.run([sys.executable, ROOT / "bench/models/many_layers.py", model, "--nodes", "2000", "--megabytes", "5"], check=True)
        subprocess.run([args.quench, "analyse", model, "--size", "tokens=64", "--ceilings", "100,10", "--weights", "--report", page,
                        "--progress", "none"], check=True, env={**os.environ, "XDG_CACHE_HOME": name})
        problems = problems_of(program, page, folder)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
