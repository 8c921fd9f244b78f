#!/bin/sh
# Makes .venv with everything in it, or brings it up to date. Works on a fresh Debian or Ubuntu machine.
set -eu
started=$(date +%s)
PYTHON=${PYTHON:-python3}

say() { printf '%s\n' "$*" >&2; }

if ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    say "harness needs Python 3.11 or newer, and '$PYTHON' is not. Install one, or name it: make test PYTHON=/path/to/python3.11"
    exit 2
fi
# Debian and Ubuntu ship Python without its venv module; as root it can be had without a question.
if ! "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null; then
    version=$("$PYTHON" -c 'import sys; print(f"python{sys.version_info[0]}.{sys.version_info[1]}-venv")')
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get update -qq && apt-get install -y -qq "$version" >&2
    else
        say "Python's venv module is missing. Run: sudo apt-get install $version"
        exit 2
    fi
fi
[ -x .venv/bin/python ] || "$PYTHON" -m venv .venv
log=.venv/install.log
if ! .venv/bin/python -m pip install --disable-pip-version-check -q -e '.[dev]' -c constraints.txt >"$log" 2>&1; then
    say "Installing the packages failed. The last lines of $log:"
    tail -n 15 "$log" >&2
    exit 2
fi
touch .venv/installed
say "environment ready in .venv after $(( $(date +%s) - started )) s"
