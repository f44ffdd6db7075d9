#!/usr/bin/env bash
# Makes a Chromium be there for the console's tests (tests/stack/test_console.py), which are left out without one.
#
# For CI and bare Debian machines, as root: installs Debian's chromium where none is found. Nothing is downloaded from
# anywhere else. Exits 0 when there is one; otherwise says why.
set -euo pipefail

LOG=$(mktemp)
trap 'rm -f "$LOG"' EXIT

found() { command -v chromium || command -v chromium-browser || command -v google-chrome; }

fail() {
    {
        echo "!! ci_browser: $*"
        tail -n 15 "$LOG" | sed 's/^/!!   /'
    } >&2
    exit 1
}

if ! found >/dev/null; then
    [ "$(id -u)" = 0 ] || fail "not root: cannot install chromium"
    command -v apt-get >/dev/null || fail "no apt-get here: install a Chromium by hand"
    echo "ci_browser: installing chromium"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core; } \
        >"$LOG" 2>&1 || fail "apt-get could not install chromium"
fi
timeout 60 "$(found)" --headless --no-sandbox --version 2>"$LOG" || fail "the browser does not start"
