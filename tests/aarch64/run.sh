#!/bin/sh
# Builds for aarch64, runs the unit tests under qemu-user and the program in an emulated machine:
# ./dev test-aarch64 --help
#
# Both roots, the one with the cross compiler and the one of the machine, are made by mmdebstrap from
# this machine's own package sources. REPOSITORY is the clone, WORK the directory in it for roots, objects
# and logs. As root.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# shellcheck disable=SC1091 # a neighbour
. "$here/../support/apt_sources.sh"
repository=${REPOSITORY:?}
work=${WORK:?}
jobs=${JOBS:-$(nproc)}
seconds=${CARREL_AARCH64_SECONDS:-2400}
suite=bookworm

say() {
  printf 'test-aarch64: %s\n' "$*"
}

fail() {
  say "$*" >&2
  exit 1
}

[ $# -gt 0 ] || set -- build libc unit machine
parts=" $* "
for part in "$@"; do
  case $part in
    build | libc | unit | machine) ;;
    *) fail "there is no part '$part'; see ./dev test-aarch64 --help" ;;
  esac
done
[ "$(id -u)" -eq 0 ] || fail 'root file systems are made and entered as root: sudo ./dev test-aarch64'

cross=$work/cross
machine=$work/machine
mkdir -p "$work"
running=
# shellcheck disable=SC2317 # called by the traps
leave() {
  status=$?
  trap - EXIT
  trap '' INT TERM HUP
  # In the namespaces of the build everything dies with the first process, and that dies with this one.
  for process in $running; do
    kill -KILL "$process" 2>/dev/null || true
    wait "$process" 2>/dev/null || true
  done
  rm -rf --one-file-system "$work/sources.$$" "$work/acquire.$$.conf" "$work/payload.$$" "$work/initramfs.$$" "$work/tmp.$$" \
    "$cross.new" "$machine.new"
  exit "$status"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# wanted PART: whether it was asked for.
wanted() {
  case $parts in
    *" $1 "*) return 0 ;;
    *) return 1 ;;
  esac
}

# until_done SECONDS: waits for $running, which is one process, and ends it when it takes longer.
until_done() {
  left=$1
  while [ "$left" -gt 0 ] && kill -0 "$running" 2>/dev/null; do
    sleep 1
    left=$((left - 1))
  done
  late=no
  if kill -0 "$running" 2>/dev/null; then
    late=yes
    kill -KILL "$running" 2>/dev/null || true
  fi
  status=0
  wait "$running" || status=$?
  running=
  [ "$late" = no ] || fail "it did not end in $1 seconds"
  return "$status"
}

# make_root DIRECTORY MMDEBSTRAP-OPTION...: kept until its packages may have changed, or the way that it is made.
make_root() {
  made=$1
  shift
  stamp="$* $(date +%Y-%W)"
  if [ -d "$made" ] && [ "$(cat "$made.made-by" 2>/dev/null)" = "$stamp" ]; then
    return 0
  fi
  say "making $(basename "$made"), a root of Debian's"
  rm -rf --one-file-system "$made" "$made.new"
  apt-config dump Acquire >"$work/acquire.$$.conf"
  # Its mounts and its programs end with it, however it ends.
  # shellcheck disable=SC2046 # names of files without spaces
  unshare --mount --pid --fork --kill-child --mount-proc --propagation private \
    nice -n "${CARREL_AARCH64_NICE:-0}" mmdebstrap --mode=root --format=directory "$@" --aptopt="$work/acquire.$$.conf" \
    --aptopt='Acquire::Languages "none"' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    "$suite" "$made.new" $(apt_sources "$suite" "$work/sources.$$") >"$made.log" 2>&1 &
  running=$!
  until_done 1800 || {
    tail -n 5 "$made.log" >&2
    fail "could not make it; see $made.log"
  }
  rm -rf "$work/sources.$$"
  mv "$made.new" "$made"
  echo "$stamp" >"$made.made-by"
}

# in_cross LOG SECONDS COMMAND...: in the root with the cross compiler, with namespaces of its own.
in_cross() {
  log=$1
  longest=$2
  shift 2
  mkdir -p "$work/tmp.$$"
  unshare --mount --uts --ipc --net --pid --fork --kill-child --propagation private \
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root ROOT="$cross" REPOSITORY="$repository" TEMPORARY="$work/tmp.$$" \
    nice -n "${CARREL_AARCH64_NICE:-0}" sh "$here/inside.sh" "$@" </dev/null >"$log" 2>&1 &
  running=$!
  until_done "$longest"
}

passed=0
failed=0
# add PASSED FAILED
add() {
  passed=$((passed + $1))
  failed=$((failed + $2))
}

# add_sum 'N passed, N failed'
add_sum() {
  add "${1%% *}" "$(echo "$1" | sed 's/.* passed, \([0-9]*\) failed$/\1/')"
}

# The host's own compiler is amd64's; the libraries are arm64's alone, because some cannot be there for two.
libraries='musl-dev libc6-dev linux-libc-dev libsqlite3-dev libtomlplusplus-dev libarchive-dev libzstd-dev
  zlib1g-dev libssl-dev libgtest-dev libgmock-dev'
include=g++-aarch64-linux-gnu,cmake,ninja-build,pkg-config,python3,qemu-user-static,openssl,xz-utils,nlohmann-json3-dev
for library in $libraries; do
  include=$include,$library:arm64
done
built=$work/build
inner=/src/${built#"$repository"/}
if wanted build || wanted libc || wanted unit; then
  make_root "$cross" --variant=minbase --architectures=amd64,arm64 --include="$include"
fi

if wanted build; then
  begun=$(date +%s)
  say "building $built"
  in_cross "$work/configure.log" 300 cmake -S /src -B "$inner" -G Ninja \
    --toolchain /src/cmake/aarch64.cmake -DCMAKE_BUILD_TYPE=Release -DCARREL_TESTS=ON || {
    tail -n 20 "$work/configure.log" >&2
    fail "it is not configured; see $work/configure.log"
  }
  in_cross "$work/build.log" 14400 ninja -C "$inner" -j "$jobs" carrel unit_tests carrel_libc_probe || {
    grep -A 20 '^FAILED' "$work/build.log" | head -n 60 >&2
    fail "it does not build; see $work/build.log"
  }
  say "built in $(($(date +%s) - begun)) seconds"
fi

if wanted libc; then
  say 'what the two C libraries have in common'
  in_cross "$work/libc.log" 1800 env BUILD="$inner" sh tests/aarch64/libc.sh || true
  sum=$(tail -n 1 "$work/libc.log")
  case $sum in
    *' passed, 0 failed') ;;
    *' passed, '*' failed') cat "$work/libc.log" ;;
    *)
      say "it ended early; see $work/libc.log" >&2
      sum='0 passed, 1 failed'
      ;;
  esac
  say "$sum"
  add_sum "$sum"
fi

# names FILE...: the first word of each line.
names() {
  sed -e '/^#/d' -e '/^$/d' -e 's/ .*//' "$@"
}

attribute() {
  value=$(sed -n '/<testsuite /,/>/p' "$1" | tr '\n' ' ' | sed -n "s/.*[[:space:]]$2=\"\([0-9]*\)\".*/\1/p")
  echo "${value:-0}"
}

if wanted unit; then
  begun=$(date +%s)
  say 'unit tests under qemu-user'
  report=$built/test-report.xml
  rm -f "$report"
  left_out=$(names "$here/differences.txt" "$here/../known_open.txt" | sed 's/[.+]/[&]/g' | paste -sd '|' -)
  in_cross "$work/unit.log" 7200 ctest --test-dir "$inner" -j "$jobs" --timeout 300 --no-tests=error \
    -L '^unit:' -E "^($left_out)" --output-on-failure --output-junit "$inner/test-report.xml" || true
  [ -f "$report" ] || fail "they did not run; see $work/unit.log"
  failures=$(attribute "$report" failures)
  skipped=$(($(attribute "$report" skipped) + $(attribute "$report" disabled)))
  tests=$(attribute "$report" tests)
  sed -n '/^The following tests FAILED:/,$p' "$work/unit.log"
  echo 'left out here, by tests/aarch64/differences.txt:'
  grep -v -e '^#' -e '^$' "$here/differences.txt"
  say "unit tests: $((tests - failures - skipped)) passed, $failures failed, $skipped skipped in $(($(date +%s) - begun)) s"
  add $((tests - failures - skipped)) "$failures"
fi

# The machine's disk, its first program and what it is to test.
make_machine() {
  make_root "$machine" --variant=extract --architectures=arm64 \
    --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
    --include=base-files,base-passwd,bash,coreutils,util-linux,mount,python3-minimal,busybox-static,procps,kmod,dash,sed,grep,mawk,debianutils,findutils,tar,gzip,diffutils,hostname,iproute2,libc-bin,e2fsprogs,libstdc++6,libsqlite3-0,libarchive13,libssl3,libzstd1,zlib1g,linux-image-cloud-arm64
  modules=$(find "$machine/usr/lib/modules" -mindepth 1 -maxdepth 1)
  cp "$machine"/boot/vmlinuz-* "$work/vmlinuz"
  # No script of a package has run, because nothing here runs programs of that processor: what they
  # would have made and is needed is made here.
  disk=$work/machine.img
  made_from="$(cat "$machine.made-by") $(cksum <"$here/run.sh")"
  if [ ! -f "$disk" ] || [ "$(cat "$disk.made-by" 2>/dev/null)" != "$made_from" ]; then
    for file in passwd group; do
      cp "$machine/usr/share/base-passwd/$file.master" "$machine/etc/$file"
    done
    sed -i 's|^root:.*|root:x:0:0:root:/root:/bin/bash|' "$machine/etc/passwd"
    echo 'someone:x:1000:1000::/home/someone:/bin/bash' >>"$machine/etc/passwd"
    echo 'someone:x:1000:' >>"$machine/etc/group"
    mkdir -p "$machine/home/someone" "$machine/payload"
    chown 1000:1000 "$machine/home/someone"
    depmod -b "$machine" "$(basename "$modules")"
    cat >"$machine/etc/inittab" <<INITTAB
::wait:/bin/sh /payload/guest.sh
::wait:/usr/bin/busybox poweroff -f
INITTAB
    rm -f "$disk"
    mke2fs -q -t ext4 -L carrel-root -O ^has_journal -d "$machine" "$disk.new" 2G >/dev/null
    mv "$disk.new" "$disk"
    echo "$made_from" >"$disk.made-by"
  fi

  first=$work/initramfs.$$
  mkdir -p "$first/modules"
  # Of each what it needs comes first: modules.dep has that last.
  for module in virtio_mmio virtio_blk; do
    grep -E "/$module\.ko:" "$modules/modules.dep" | tr -d ':' | tr ' ' '\n' | tac
  done | awk '!seen[$0]++' >"$first/order"
  while read -r module; do
    cp "$modules/$module" "$first/modules/"
    basename "$module"
  done <"$first/order" >"$first/modules/order"
  mkdir "$first/bin"
  cp "$machine/usr/bin/busybox" "$first/bin/"
  cp "$here/init.sh" "$first/init"
  chmod 755 "$first/init"
  (cd "$first" && find . | cpio --quiet -o -H newc) >"$work/initramfs"

  payload=$work/payload.$$
  mkdir -p "$payload/bin"
  cp "$built/carrel" "$payload/bin/"
  cp "$here/guest.sh" "$here/rooms.sh" "$here/units.sh" "$here/listener.py" "$here/api_client.py" "$payload/"
  for where in machine nowhere; do
    sed -n "s/^\([^# ][^ ]*\) $where .*/\1/p" "$here/differences.txt" >"$payload/$where"
  done
  mkdir "$payload/units"
  find "$built/src" -type f -perm -u+x -name '*_test' -exec cp {} "$payload/units/" \;
  rm -f "$work/payload.img"
  mke2fs -q -F -t ext4 -L carrel-payload -O ^has_journal -d "$payload" "$work/payload.img" \
    "$(($(du -sm "$payload" | cut -f 1) + 16))M" >/dev/null
}

if wanted machine; then
  [ -x "$built/carrel" ] || fail "there is no $built/carrel: ./dev test-aarch64 build"
  make_machine
  begun=$(date +%s)
  results=$work/machine.results
  : >"$results"
  say "booting a machine; what it says is in $results"
  nice -n "${CARREL_AARCH64_NICE:-0}" qemu-system-aarch64 -nodefaults -no-user-config -display none -no-reboot \
    -machine virt -accel tcg,thread=multi -cpu cortex-a72 -smp 2 -m 2048 \
    -kernel "$work/vmlinuz" -initrd "$work/initramfs" \
    -append 'console=ttyAMA0 quiet loglevel=4 panic=-1' \
    -drive "if=none,id=root,file=$disk,format=raw,snapshot=on" -device virtio-blk-device,drive=root \
    -drive "if=none,id=payload,file=$work/payload.img,format=raw,readonly=on" -device virtio-blk-device,drive=payload \
    -serial "file:$results" </dev/null &
  running=$!
  tail -n +1 -f --pid="$running" "$results" 2>/dev/null | sed -u 's|\r$||' &
  shown=$!
  until_done "$seconds" || say 'QEMU ended with an error' >&2
  wait "$shown" || true
  sum=$(tr -d '\r' <"$results" | grep -E '^[0-9]+ passed, [0-9]+ failed$' | tail -n 1)
  case $sum in
    *' passed, '*' failed') add_sum "$sum" ;;
    *)
      say "the machine ended early; see $results" >&2
      add 0 1
      ;;
  esac
  say "the machine took $(($(date +%s) - begun)) seconds; it is emulated, and so are the times in it"
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
