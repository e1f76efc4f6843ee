#!/bin/sh
# Make sure that there is a browser for the tests of the gallery's pages, where that is possible.
# Never fails: without one those tests are skipped, and this says so.
set -u
for name in chromium chromium-browser google-chrome google-chrome-stable chrome; do
    if command -v "$name" >/dev/null; then
        exit 0
    fi
done
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    if { apt-get update && apt-get install --yes --no-install-recommends chromium; } >/dev/null; then
        exit 0
    fi
fi
echo "no Chromium, and it can't be installed: the browser tests will be skipped" >&2
exit 0
