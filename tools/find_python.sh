#!/bin/sh
# Print the newest Python that works, from 3.11 up or of the minor versions given, on PATH or under pyenv's versions folder.
# A name on PATH may be a shim for a version that is not there, so each candidate is tried.
set -u
versions=${PYENV_ROOT:-$HOME/.pyenv}/versions
for minor in ${*:-14 13 12 11}; do
    for candidate in "$(command -v python3.$minor)" "$versions"/3.$minor*/bin/python3 \
        "$(command -v python3)" "$(command -v python)"; do
        [ -n "$candidate" ] || continue
        check="import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != (3, $minor))"
        if "$candidate" -c "$check" 2>/dev/null; then
            echo "$candidate"
            exit 0
        fi
    done
done
echo "no working Python from 3.11 up was found on PATH or under $versions" >&2
exit 1
