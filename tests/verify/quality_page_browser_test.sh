#!/usr/bin/env bash
# Opens the page in headless Chromium and counts what its DOM holds.
# usage: quality_page_browser_test.sh MAKE_QUALITY_PAGE
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$1" "$folder/page.html"

command -v chromium >/dev/null || { echo "chromium is missing; run scripts/setup.sh test"; exit 1; }
chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
  --user-data-dir="$folder/profile" --virtual-time-budget=5000 --dump-dom \
  "file://$folder/page.html" >"$folder/dom.html" 2>"$folder/log" ||
  { tail -n 20 "$folder/log"; exit 1; }

# expect WHAT COUNT PATTERN [SECTION-START SECTION-END]
expect() {
  local found
  found=$(sed -n "/$4/,/$5/p" "$folder/dom.html" | grep -o "$3" | wc -l)
  if [ "$found" -ne "$2" ]; then
    echo "$1: found $found, expected $2"
    exit 1
  fi
  echo "$1: $found"
}
expect "heat-map cells" $((62 * 256)) '<rect class="cell"' '<svg id="heatmap"' '<\/svg>'
expect "cells of other matrices" $((62 * 4)) '<rect class="cell"' '<svg id="layers"' '<\/svg>'
expect "histogram bars" 48 '<rect class="bar"' '<svg id="histogram"' '<\/svg>'
expect "rows of the worst" 20 '<tr><td>' '<table id="worst"' '<\/table>'
expect "facts" 2 '<tr><th>' '<table id="facts"' '<\/table>'
expect "escaped title" 1 'A test &amp; its &lt;page&gt;' '<h1>' '<\/h1>'
bytes=$(stat -c %s "$folder/page.html")
[ "$bytes" -lt 3000000 ] || { echo "the page has $bytes bytes, limit 3,000,000"; exit 1; }
