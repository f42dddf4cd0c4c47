#!/bin/sh
# Installs the official SDKs whose servers the tests of MCP run against: install.sh DIRECTORY. What is
# there of these versions is kept.
set -eu

PYTHON_SDK=mcp==2.3.0
TYPESCRIPT_SDK='@modelcontextprotocol/sdk@1.32.2 @modelcontextprotocol/server@2.4.0
  @modelcontextprotocol/node@2.1.2 zod@4.6.7'
# The second line of the SDK needs it, and Debian 12 has an older one.
LEAST_NODE=20
NODE=node@24.21.0

mkdir -p "$1"
directory=$(CDPATH='' cd -- "$1" && pwd)
wanted="$PYTHON_SDK $TYPESCRIPT_SDK"
[ "$(cat "$directory/stamp" 2>/dev/null)" != "$wanted" ] || exit 0

rm -rf "$directory/stamp" "$directory/python" "$directory/node"
python=python3
[ ! -x /usr/bin/python3 ] || python=/usr/bin/python3
"$python" -m venv "$directory/python"
"$directory/python/bin/pip" install --quiet --disable-pip-version-check "$PYTHON_SDK"
mkdir "$directory/node"
(
  cd "$directory/node"
  echo '{"private": true}' >package.json
  version=$(node --version | sed 's/^v\([0-9]*\).*/\1/')
  [ "$version" -ge "$LEAST_NODE" ] || TYPESCRIPT_SDK="$TYPESCRIPT_SDK $NODE"
  # shellcheck disable=SC2086 # package names are words
  npm install --silent --no-audit --no-fund $TYPESCRIPT_SDK
)
chmod -R a+rX "$directory"
printf '%s\n' "$wanted" >"$directory/stamp"
