#!/usr/bin/env bash
# Says where the browser of the tests is. Where there is none, root gets Debian's by apt-get.
set -euo pipefail

there() { command -v chromium || command -v chromium-browser; }

there && exit
if [ "$(id -u)" -ne 0 ]; then
    echo "there is no chromium, and only root can install it: apt-get install chromium" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
if ! command -v apt-get >/dev/null; then
    echo "there is no chromium, and no apt-get to install it by: put a chromium on the PATH" >&2
    exit 1
fi
echo "there is no chromium: apt-get installs it" >&2
{ apt-get -qq update && apt-get -qq --yes --no-install-recommends install chromium; } >&2 || true
there && exit
echo "apt-get could not install chromium: is there a network, and is this Debian?" >&2
exit 1
