#!/bin/sh
# In the root with the cross compiler: what tests/libc checks, for aarch64. BUILD is the directory with the
# program. The last line is "N passed, N failed".
set -u
export PATH="/tmp/tools:$PATH"
mkdir -p /tmp/tools
for tool in gcc readelf objcopy nm; do
  ln -sf "$(command -v aarch64-linux-gnu-$tool)" /tmp/tools/$tool
done
# The emulator says a word of its own when a program ends by a signal, and so does a shell.
cat >/tmp/tools/probe <<PROBE
#!/usr/bin/python3
import os, subprocess, sys
run = subprocess.run(["qemu-aarch64-static", "$BUILD/tests/libc/carrel_libc_probe", *sys.argv[1:]],
                     stderr=subprocess.PIPE, text=True)
os.write(2, "".join(line for line in run.stderr.splitlines(True)
                    if not line.startswith("qemu: uncaught target signal")).encode())
if run.returncode < 0:
    os.kill(os.getpid(), -run.returncode)
sys.exit(run.returncode)
PROBE
chmod 755 /tmp/tools/probe
export CARREL_BINARY="$BUILD/carrel" CARREL_LIBC_PROBE=/tmp/tools/probe CARREL_MAP="$BUILD/carrel.map"
passed=0
failed=0
for subject in boundary layouts program; do
  if timeout 600 python3 -B "tests/libc/${subject}_test.py"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "libc.$subject failed"
  fi
done
echo "$passed passed, $failed failed"
