#!/bin/sh
# Inside the emulated machine, as root: the unit tests that qemu-user cannot run, each in a process of its
# own. The last line is "N passed, N failed, N skipped".
set -u
payload=/payload
passed=0
failed=0
skipped=0
filter=$(sed 's/$/*/' $payload/machine | paste -sd: -)-$(sed 's/$/*/' $payload/nowhere | paste -sd: -)
for program in "$payload"/units/*; do
  GTEST_FILTER=$filter "$program" --gtest_list_tests |
    busybox awk '/^[^ ].*\.( |$)/ { suite = $1 } /^ / { print suite $1 }' >/run/unit-names
  while read -r name; do
    GTEST_FILTER=$name timeout -k 10 300 "$program" >/run/unit-log 2>&1 </dev/null
    status=$?
    if grep -q '^\[  SKIPPED \]' /run/unit-log; then
      skipped=$((skipped + 1))
      grep -m 1 -A 1 'Skipped$' /run/unit-log | tail -n 1
    elif [ "$status" -eq 0 ] && grep -q '^\[  PASSED  \] 1 test' /run/unit-log; then
      passed=$((passed + 1))
    else
      failed=$((failed + 1))
      echo "FAILED $name: status $status"
      sed 's/^/  | /' /run/unit-log
    fi
  done </run/unit-names
done
if [ $((passed + failed)) -eq 0 ]; then
  echo 'FAILED: nothing was tested'
  failed=1
fi
echo "$passed passed, $failed failed, $skipped skipped"
