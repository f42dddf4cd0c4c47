#!/bin/sh
# Inside the guest, as root, as a systemd service: runs the test programs and the scenarios, prints
# what failed and at the end "N passed, N failed". The machine is switched off afterwards.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
export LANG=C.UTF-8
payload=/payload
only=$(cat $payload/only)
export CARREL_BINARY=$payload/bin/carrel
export CARREL_PROBE=$payload/bin/carrel_probe
passed=0
failed=0
skipped=0

# The tests that are left out: known to be open, or about speed that an emulated machine lacks.
excluded=$(cat $payload/known_open $payload/too_slow | sed 's/$/*/' | paste -sd: -)

# tests NAME FILTER HEADING [COMMAND...]: one GoogleTest program, as the last word of COMMAND.
tests() {
  program=$1
  filter=$2
  label=$3
  shift 3
  case "$only" in
    all) ;;
    *) case "$label" in *$only*) ;; *) return ;; esac ;;
  esac
  log=/tmp/log-$program
  begin=$(date +%s)
  GTEST_FILTER=$filter-$excluded "$@" "$payload/bin/$program" >"$log" 2>&1 </dev/null
  status=$?
  ok=$(grep -c '^\[       OK \]' "$log")
  bad=$(grep -c '^\[  FAILED  \] .* (.* ms)$' "$log")
  out=$(grep -c '^\[  SKIPPED \] .* (.* ms)$' "$log")
  if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; then
    bad=1
  fi
  if [ "$ok" -eq 0 ] && [ "$bad" -eq 0 ]; then
    echo "$label: nothing was tested"
    bad=1
  fi
  passed=$((passed + ok))
  failed=$((failed + bad))
  skipped=$((skipped + out))
  echo "$label: $ok passed, $bad failed, $out skipped ($(($(date +%s) - begin)) s)"
  if [ "$bad" -ne 0 ]; then
    # Of each failed test what it said, and of a program that died its last words.
    awk '/^\[ RUN      \]/ { text = "" } { text = text "\n" $0 }
         /^\[  FAILED  \] .* \(.* ms\)$/ { print text }' "$log"
    grep -q 'tests ran' "$log" || tail -n 30 "$log"
  fi
}

# session PROGRAM: as the user `resident`, in a login session.
session() {
  su -l resident -w GTEST_FILTER,CARREL_BINARY -c "$1"
}

# delegated PROGRAM: the same, in a scope of its own with control groups of its own.
delegated() {
  session "systemd-run --user --scope --quiet -p Delegate=yes $1"
}

# scenarios: the stories with sessions, in Python.
scenarios() {
  case "$only" in
    all) chosen= ;;
    scenarios*) chosen=${only#scenarios} ;;
    *) return ;;
  esac
  # shellcheck disable=SC2086 # a word, or none
  { python3 -B $payload/scenarios.py ${chosen#:} 2>&1; echo "$?" >/tmp/status-scenarios; } |
    tee /tmp/log-scenarios
  status=$(cat /tmp/status-scenarios)
  good=$(sed -n 's/^scenarios: \([0-9]*\) passed, .*/\1/p' /tmp/log-scenarios)
  bad=$(sed -n 's/^scenarios: .* passed, \([0-9]*\) failed$/\1/p' /tmp/log-scenarios)
  passed=$((passed + ${good:-0}))
  failed=$((failed + ${bad:-1}))
  if [ "$status" -ne 0 ] && [ "${bad:-1}" -eq 0 ]; then
    failed=$((failed + 1))
  fi
}

echo "Debian $(cat /etc/debian_version), Linux $(uname -r), $(stat -fc %T /sys/fs/cgroup)"
[ "$(stat -fc %T /sys/fs/cgroup)" = cgroup2fs ] || echo 'not control groups v2 alone'

# The attacks take a kernel module that appears for their doing.
udevadm settle --timeout=60 2>/dev/null || true
if [ "$only" = script ]; then
  sh $payload/script 2>&1
  exit
fi

# Each program runs its tests as root and as an ordinary user who has no session (/root and /user),
# and those that a session changes once more as a user who has one. Left out is what neither the
# kernel nor systemd has a say in.
tests kernel_test 'Cgroup*' 'kernel, root'
tests backends_native_test '*' 'native, root'
scenarios
loginctl enable-linger resident
tests kernel_test 'Cgroup*' 'kernel, a user in a delegated scope' delegated
tests end_to_end_given_groups_test '*' 'given groups'
limits='*Memory*:*ManySmall*:*Swap*:*FourBusy*:*Fraction*:*ProcessesAre512*:*Threads*:*Tmp*'
tests end_to_end_limits_test "$limits:*Stopped*:*Required*:*FallBack*" \
  'limits, root and a user without a session'
tests end_to_end_limits_test '*OutOf*/user:*Fraction*/user:*Required*/user:*FallBack*/user' \
  'limits, a user with a session' session
lives='*Leaves*:*Ignores*:*Outlive*:*Died*:*Concurrent*:*Lease*:*Death*:*Overstep*:*Stats*:*Idle*'
tests end_to_end_lifecycle_test "$lives" 'lifecycle, root and a user without a session'
tests crash_kill_test '*' 'killed commands, root and a user without a session'
tests crash_keeper_test '*/root' 'killed keepers, root'
tests crash_sweep_test '*/root' 'sweeping, root'
tests end_to_end_one_shot_test '*Clean*:*Leaves*:*Dies*:*Python*:*Interrupt*' \
  'one-shots, root and a user without a session'
tests end_to_end_privileges_test '*' 'privileges, root and a user without a session'
# With a session even what a watchdog cannot do is done.
excluded=$(sed 's/$/*/' $payload/too_slow | paste -sd: -)
tests end_to_end_lifecycle_test "$(echo "$lives" | sed 's|\*:|*/user:|g; s|$|/user|')" \
  'lifecycle, a user with a session' session
tests crash_keeper_test '*/user' 'killed keepers, a user with a session' session
tests crash_sweep_test '*/user' 'sweeping, a user with a session' session

if [ "$((passed + failed))" -eq 0 ]; then
  echo "nothing is called '$only'"
  failed=1
fi
[ "$skipped" -eq 0 ] || echo "$skipped skipped"
echo "$passed passed, $failed failed"
