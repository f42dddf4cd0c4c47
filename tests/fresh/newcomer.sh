#!/bin/sh
# What a newcomer does in a fresh system, as an ordinary user who may use sudo: clones the
# repository and runs the parts that are named in /srv/carrel/parts. The last line is
# "N passed, N failed".
set -u
export CI=true
passed=0
failed=0
report=

# Adds the numbers of the last line of what ./dev printed, or one failure if it has none.
add() {
  line=$(tail -n 1 "$1")
  more=$(printf '%s' "$line" | sed -n 's/^\([0-9]*\) passed, [0-9]* failed$/\1/p')
  less=$(printf '%s' "$line" | sed -n 's/^[0-9]* passed, \([0-9]*\) failed$/\1/p')
  passed=$((passed + ${more:-0}))
  failed=$((failed + ${less:-1}))
}

# part NAME COMMAND...
part() {
  name=$1
  shift
  echo "== newcomer: $*"
  begun=$(date +%s)
  before="$passed $failed"
  { "$@" 2>&1; echo "$?" >"/tmp/status"; } | tee "/tmp/part"
  case $name in
    demo | script) if [ "$(cat /tmp/status)" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi ;;
    *) add /tmp/part ;;
  esac
  report="$report
$*: $((passed - ${before% *})) passed, $((failed - ${before#* })) failed, $(($(date +%s) - begun)) s"
}

cd || exit 1
git -c init.defaultBranch=main -c advice.detachedHead=false clone --quiet /srv/carrel/bundle carrel || {
  echo '0 passed, 1 failed'
  exit 1
}
cd carrel || exit 1
# root, as oneself: sudo forgets the environment.
as_root='sudo env CI=true CARREL_DIFFERENCES=/srv/carrel/differences'
while read -r set; do
  as_root="$as_root $set"
done </srv/carrel/environment
while read -r wanted; do
  # shellcheck disable=SC2086 # $as_root is words
  case $wanted in
    demo) part demo ./dev demo ;;
    test) part test $as_root ./dev test ;;
    # The unit tests of one's own, and the end-to-end tests with those that need root.
    unit) part unit env CARREL_DIFFERENCES=/srv/carrel/differences ./dev test --unit ;;
    end-to-end) part end-to-end $as_root ./dev test --end-to-end ;;
    script) part script sh /srv/carrel/script ;;
  esac </dev/null
done </srv/carrel/parts

echo
echo "Debian $(cat /etc/debian_version), $(g++ --version 2>/dev/null | head -n 1)$report"
if [ -s /srv/carrel/differences ]; then
  echo 'left out, by tests/fresh/differences.txt:'
  cat /srv/carrel/differences
fi
echo "$passed passed, $failed failed"
