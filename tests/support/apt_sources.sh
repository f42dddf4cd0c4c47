#!/bin/sh
# apt_sources SUITE DIRECTORY: what this machine's apt knows of Debian's archive, for SUITE, as files
# for mmdebstrap in DIRECTORY; prints their names. Other archives and what they are signed with stay
# out. To be sourced.
apt_sources() {
  mkdir -p "$2"
  codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
  [ -n "$codename" ] || return 0
  for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    [ -f "$list" ] || continue
    grep -E "^deb .*[[:space:]]$codename.*[[:space:]]main" "$list" |
      sed "s/$codename/$1/g" >>"$2/debian.list" || true
  done
  for list in /etc/apt/sources.list.d/*.sources; do
    [ -f "$list" ] || continue
    awk -v codename="$codename" 'BEGIN { RS = ""; ORS = "\n\n" }
      $0 ~ "Suites:[^\n]*" codename && /Components:[^\n]*main/ &&
      (!/Signed-By:/ || /debian-archive-keyring/)' "$list" |
      sed -e '/^#/d' -e "s/$codename/$1/g" >>"$2/debian.sources"
  done
  find "$2" -type f -size +0
}
