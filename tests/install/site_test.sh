#!/usr/bin/env bash
# The pages as a site, from the repository's files alone: scripts/build_docs makes it, its search knows words of all pages, and a
# dead link is an error.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$root"
mkdir -p "$work/clone/build" build
git ls-files -z -- README.md CHANGELOG.md CMakeLists.txt docs examples common/runtime scripts | tar --null -T - -c | tar -x -C "$work/clone"
ln -s "$root/build/docs-venv" "$work/clone/build/docs-venv"  # kept for the next run
if [[ ! -x build/docs-venv/bin/sphinx-build ]] && ! scripts/build_docs "$work/first" >"$work/log" 2>&1 && grep -q "No matching distribution\|Connection" "$work/log"; then
  echo "skipped: Sphinx cannot be installed"
  exit 77
fi
cd "$work/clone"
scripts/build_docs "$work/site"
for page in index.html docs/installing.html docs/compiler.html examples/README.html; do
  grep -q '<h1' "$work/site/$page"
done
for word in winograd debian gateway; do
  grep -qi "\"$word" "$work/site/searchindex.js" || { echo "the search does not know \`$word\`"; exit 1; }
done
# Its own links lead to files, on whatever server.
python3 - "$work/site" <<'PYTHON'
import pathlib, re, sys
site = pathlib.Path(sys.argv[1])
dead = [f"{page.relative_to(site)}: {link}" for page in site.rglob("*.html") for link in re.findall(r'<a [^>]*href="(?!\w+:)([^"#?]+)[^"]*"', page.read_text())
        if not (page.parent / link).resolve().exists()]
sys.exit("\n".join(dead) if dead else 0)
PYTHON
for dead in '[nowhere](nowhere)' '[no heading](#no-heading)' '[no file](../common/none.h)'; do
  echo "$dead" >>docs/abi.md
  if scripts/build_docs "$work/site" >"$work/log" 2>&1; then echo "a dead link is taken: $dead"; exit 1; fi
  sed -i '$d' docs/abi.md
done
