#!/bin/sh
# ./dev test-api [SECONDS]: asks a daemon what its OpenAPI document says that it can be asked, and much
# that it cannot, with schemathesis; then as many requests as wrk can send for SECONDS (10), beside
# clients that are slow. CARREL is the program.
set -eu
: "${CARREL:?is the path of the program}"
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
venv=$(dirname "$CARREL")/api-venv
wanted='schemathesis==4.32.5'
if [ "$(cat "$venv/wanted" 2>/dev/null)" != "$wanted" ]; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" --quiet --disable-pip-version-check install "$wanted"
  printf '%s\n' "$wanted" >"$venv/wanted"
fi
PYTHONPATH="$here/../soak" exec python3 -B "$here/check.py" "$CARREL" "$venv/bin/schemathesis" "${1:-10}"
