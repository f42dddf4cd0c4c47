#!/bin/sh
# Runs the tests of limits and lives in a Debian 12 of its own, in QEMU: its kernel, systemd as the
# first process, control groups v2 and nothing else. ./dev test-v2 --help
#
# BUILD is the directory with the programs, PROGRAMS their names, WORK the directory for the image
# and the logs.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
build=${BUILD:?}
work=${WORK:?}
programs=${PROGRAMS:?}
only=${1:-all}
seconds=${CARREL_V2_SECONDS:-2700}

say() {
  printf 'test-v2: %s\n' "$*"
}

"$here/make_image.sh" "$work"

# What the guest gets: the program, the test programs and the scripts that drive them.
rm -rf "$work/payload" "$work/payload.img"
mkdir -p "$work/payload/bin"
cp "$here/guest.sh" "$here/scenarios.py" "$here/service.py" "$here"/../../packaging/carrel.* "$work/payload/"
for program in $programs; do
  find "$build" -type f -perm -u+x -name "$program" -exec cp {} "$work/payload/bin/" \;
done
strip "$work"/payload/bin/*
sed -e '/^#/d' -e '/^$/d' -e 's/ .*//' "$here/../known_open.txt" >"$work/payload/known_open"
sed -e '/^#/d' -e '/^$/d' -e 's/ .*//' "$here/too_slow.txt" >"$work/payload/too_slow"
echo "$only" >"$work/payload/only"
# Instead of the tests: a script of yours, as root in the guest.
if [ "$only" = script ]; then
  cp "${2:?which script}" "$work/payload/script"
fi
mke2fs -q -F -t ext4 -O ^has_journal -d "$work/payload" "$work/payload.img" \
  "$(($(du -sm "$work/payload" | cut -f 1) + 32))M"

# boot ACCELERATOR [QEMU-OPTION...]
boot() {
  accelerator=$1
  shift
  case $accelerator in
    kvm) cpu=host ;;
    *) cpu=max ;;
  esac
  nice -n 19 qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot \
    -machine q35 -accel "$accelerator" -cpu "$cpu" -smp 2 -m 2048 -kernel "$work/vmlinuz" "$@"
}

# A kernel without a root file system panics, and with -no-reboot QEMU ends then. Where a nested
# machine hangs instead, time ends it.
kvm_works() {
  [ -r /dev/kvm ] && [ -w /dev/kvm ] || return 1
  (boot kvm -append 'panic=-1 quiet' 2>/dev/null) &
  probe=$!
  left=20
  while [ "$left" -gt 0 ] && kill -0 "$probe" 2>/dev/null; do
    sleep 1
    left=$((left - 1))
  done
  if kill -0 "$probe" 2>/dev/null; then
    # The process group of a script's background job is the script's own, so by parent.
    for child in $(ps -o pid= --ppid "$probe"); do
      kill -KILL "$child" 2>/dev/null || true
    done
    kill -KILL "$probe" 2>/dev/null || true
    wait "$probe" 2>/dev/null || true
    return 1
  fi
  wait "$probe"
}

accelerator=${CARREL_V2_ACCEL:-}
if [ -z "$accelerator" ]; then
  boot_id=$(cat /proc/sys/kernel/random/boot_id)
  if [ "$(cut -d ' ' -f 1 "$work/accelerator" 2>/dev/null)" = "$boot_id" ]; then
    accelerator=$(cut -d ' ' -f 2 "$work/accelerator")
  elif kvm_works; then
    accelerator=kvm
  else
    accelerator=tcg
  fi
  echo "$boot_id $accelerator" >"$work/accelerator"
fi
if [ "$accelerator" = tcg ]; then
  say 'KVM does not work here (CARREL_V2_ACCEL=kvm to insist): software, ten times slower'
fi

say "booting; the console is in $work/console.log"
(
  boot "$accelerator" -initrd "$work/initrd" \
    -append 'root=/dev/vda rw console=ttyS0 systemd.unified_cgroup_hierarchy=1 systemd.show_status=0 quiet loglevel=4 panic=-1 mitigations=off no_timer_check'" ${CARREL_V2_BOOT:-}" \
    -drive "file=$work/root.img,if=virtio,format=raw,snapshot=on" \
    -drive "file=$work/payload.img,if=virtio,format=raw,readonly=on" \
    -device virtio-rng-pci \
    -serial "file:$work/console.log" -serial "file:$work/results.log"
) &
machine=$!
# Everything that the guest writes is shown as it comes.
: >"$work/results.log"
tail -n +1 -f --pid="$machine" "$work/results.log" | sed -u 's|\r$||' &
shown=$!
left=$seconds
while [ "$left" -gt 0 ] && kill -0 "$machine" 2>/dev/null; do
  sleep 1
  left=$((left - 1))
done
if kill -0 "$machine" 2>/dev/null; then
  say "the guest did not finish in $seconds seconds"
  for child in $(ps -o pid= --ppid "$machine"); do
    kill "$child" 2>/dev/null || true
  done
fi
wait "$machine" || true
wait "$shown" || true
[ "$only" != script ] || exit 0
# The guest's last line is the sum.
tr -d '\r' <"$work/results.log" | tail -n 1 | grep -q ' passed, 0 failed' || {
  say "failed; the guest's words are in $work/results.log, the system's in $work/console.log"
  exit 1
}
