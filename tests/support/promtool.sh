#!/usr/bin/env bash
# Says where promtool is. Where there is none, Debian's package is unpacked in build/prometheus: it is
# not installed, so no Prometheus starts.
set -euo pipefail

here=build/prometheus
unpacked=$here/usr/bin/promtool

command -v promtool && exit
[ -x "$unpacked" ] && { echo "$unpacked"; exit; }
if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
    echo "there is no promtool, and no apt-get to get it by: put a promtool on the PATH" >&2
    exit 1
fi
echo "there is no promtool: apt-get brings the package prometheus, into $here" >&2
mkdir -p "$here"
get() { (cd "$here" && apt-get -qq download prometheus); }
{ get || { [ "$(id -u)" -eq 0 ] && apt-get -qq update && get; }; } >&2 || true
if ! dpkg-deb -x "$here"/prometheus_*.deb "$here" 2>/dev/null; then
    echo "apt-get could not bring prometheus: is there a network, and has root run apt-get update?" >&2
    exit 1
fi
rm -f "$here"/prometheus_*.deb
echo "$unpacked"
