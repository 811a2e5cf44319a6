#!/bin/sh
# Installs, upgrades, rolls back and removes dlq on a Debian or Ubuntu server. `install.sh --help`.
#
# Everything lies below /opt/dlq: one environment for each release, `current` and `previous` point at
# two of them, the units and the commands go through `current`. A release is complete before anything
# points at it, so a run that is cut short changes nothing and can be repeated. Jobs do not notice an
# upgrade: the daemons restart under them.
set -eu

HOME_DIR=/opt/dlq
UNIT_DIR=/etc/systemd/system
BIN_DIR=/usr/local/bin
MAN_DIR=/usr/local/share/man
MAN_PAGES="man1/dlq.1 man8/dlq-master.8 man8/dlq-nodeagent.8 man8/dlq-notify.8 man8/dlq-web.8"
MASTER_UNITS="dlq-master.service dlq-login.socket dlq-backup.service dlq-backup.timer dlq-notify.service dlq-provider.socket dlq-provider@.service dlq-hooks.socket dlq-hooks@.service"
NODE_UNITS="dlq-nodeagent.service dlq-jobs.service"
WEB_UNITS="dlq-web.service dlq-web.socket"

usage() {
    cat <<'END'
install.sh --role master|node|web [--role ...] --wheel FILE | --package 'dlq==VERSION' [options]
    Install, or upgrade what is installed. Running daemons are restarted; if one does not come
    back, the release before is put back. On a new host nothing is started.
    --find-links DIR    take dependencies from a directory of wheels, and from nowhere else
    --constraint FILE   pin dependencies, as pip does
    --python PATH       Python 3.11 or newer                     [default: python3]
install.sh --roll-back
    Go back to the release before (and, run again, forth).
install.sh --uninstall [--purge] [--force]
    Remove units, commands and /opt/dlq. --purge: also configuration, state, backups and the
    account. --force: although jobs run here; they are killed.
END
}

main() {
    role="" wheel="" package="" find_links="" constraint="" python=python3 act=install purge="" force=""
    while [ $# -gt 0 ]; do
        case "$1" in
            --role) role="$role ${2:?--role needs master, node or web}"; shift ;;
            --wheel) wheel=${2:?--wheel needs a file}; shift ;;
            --package) package=${2:?--package needs dlq==VERSION}; shift ;;
            --find-links) find_links=${2:?--find-links needs a directory}; shift ;;
            --constraint) constraint=${2:?--constraint needs a file}; shift ;;
            --python) python=${2:?--python needs a path}; shift ;;
            --roll-back) act=roll_back ;;
            --uninstall) act=uninstall ;;
            --purge) purge=yes ;;
            --force) force=yes ;;
            -h | --help) usage; exit 0 ;;
            *) fail "unknown option: $1 (see --help)" ;;
        esac
        shift
    done
    [ "$(id -u)" = 0 ] || fail "run it as root"
    [ -d /run/systemd/system ] || fail "this host is not run by systemd"
    [ "$act" = install ] || [ "$act" = uninstall ] || [ -L "$HOME_DIR/current" ] || fail "nothing is installed"
    exec 9>/run/lock/dlq-install
    flock -n 9 || fail "another install.sh runs"
    "$act" 9>&-
}

# --- install and upgrade ------------------------------------------------------------------------

install() {
    for one in $role; do
        case "$one" in master | node | web) ;; *) fail "--role $one: it is master, node or web" ;; esac
    done
    role=$(printf '%s\n' $role $(cat "$HOME_DIR/roles" 2>/dev/null) | sort -u | xargs)
    [ -n "$role" ] || fail "--role master, --role node or --role web is needed"
    [ -n "$wheel$package" ] || fail "--wheel FILE or --package 'dlq==VERSION' is needed"
    [ -z "$wheel" ] || [ -z "$package" ] || fail "--wheel or --package, not both"
    [ -z "$wheel" ] || [ -f "$wheel" ] || fail "there is no file $wheel"
    need_python
    name_release
    build_release
    check_release "$HOME_DIR/releases/$release"
    [ "$(release_of current)" = "$release" ] || copy_master
    point_to "$release"
}

need_python() {
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
        fail "$python is not Python 3.11 or newer: install one, and name it with --python"
    "$python" -c 'import ensurepip' 2>/dev/null && return
    command -v apt-get >/dev/null || fail "$python has no venv: install it (Debian: python3-venv)"
    say "installing python3-venv"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv >/dev/null
}

# A release is named by what is in it: the same wheel is never installed twice, another one of the
# same version is another release.
name_release() {
    if [ -n "$wheel" ]; then
        wheel=$(realpath "$wheel")
        version=$(basename "$wheel" | cut -d- -f2)
        release="$version-$(sha256sum "$wheel" | cut -c1-8)"
        wanted="@ file://$wheel"
    else
        case "$package" in dlq==?*) ;; *) fail "--package $package: write dlq==VERSION" ;; esac
        release=${package#dlq==}
        wanted="==$release"
    fi
}

build_release() {
    at="$HOME_DIR/releases/$release"
    extras=$(printf '%s\n' $role | sed 's/node/agent/' | paste -sd,)
    if [ "$(cat "$at/.complete" 2>/dev/null)" = "$extras" ]; then
        say "release $release is there already"
        return
    fi
    say "installing release $release for: $role"
    # A half-made one is thrown away; one that lacks a role is added to (jobs may run from it).
    [ -e "$at/.complete" ] || rm -rf "$at"
    mkdir -p -m 0755 "$HOME_DIR" "$HOME_DIR/releases"
    [ -x "$at/bin/python3" ] || (umask 022 && "$python" -m venv "$at")
    set -- --quiet --disable-pip-version-check --no-input --no-cache-dir
    [ -z "$find_links" ] || set -- "$@" --no-index --find-links "$find_links"
    [ -z "$constraint" ] || set -- "$@" --constraint "$constraint"
    (umask 022 && "$at/bin/python3" -m pip install "$@" "dlq[$extras] $wanted") ||
        fail "pip could not install it; nothing has changed"
    echo "$extras" >"$at/.complete"
}

# Checks that are possible before anything points at the new release.
check_release() {
    for one in $role; do
        if [ "$one" = master ] && [ -e /etc/dlq/master.toml ]; then
            "$1/bin/dlq-master" run --config /etc/dlq/master.toml --check-config >/dev/null ||
                fail "release $release refuses /etc/dlq/master.toml; nothing has changed"
            [ ! -e /etc/dlq/notify.toml ] || [ ! -x "$1/bin/dlq-notify" ] ||
                "$1/bin/dlq-notify" run --config /etc/dlq/notify.toml --check-config >/dev/null ||
                fail "release $release refuses /etc/dlq/notify.toml; nothing has changed"
        elif [ "$one" = node ] && [ -e /etc/dlq/nodeagent.toml ]; then
            "$1/bin/dlq-nodeagent" run --config /etc/dlq/nodeagent.toml --check-config >/dev/null ||
                fail "release $release refuses /etc/dlq/nodeagent.toml; nothing has changed"
        elif [ "$one" = web ] && [ -e /etc/dlq/web.toml ] && [ -x "$1/bin/dlq-web" ]; then
            "$1/bin/dlq-web" serve --config /etc/dlq/web.toml --check-config >/dev/null ||
                fail "release $release refuses /etc/dlq/web.toml; nothing has changed"
        fi
    done
}

# Switch over, restart what runs, and go back if it does not come up.
point_to() {
    before=$(release_of current)
    if [ "$before" != "$1" ]; then
        [ -z "$before" ] || link "$before" previous
        link "$1" current
    fi
    put_in_place
    restart && { finished "$1"; return; }
    [ -n "$before" ] && [ "$before" != "$1" ] || fail "the daemons do not start; see journalctl -u 'dlq-*'"
    say "release $1 does not start; going back to $before (see journalctl -u 'dlq-*')"
    link "$before" current
    link "$1" previous
    put_in_place
    restart || fail "and $before does not start either"
    fail "release $1 does not start; $before serves again"
}

finished() {
    echo "$role" >"$HOME_DIR/roles"
    remove_old_releases
    say "release $1 is current"
    for one in $role; do
        case "$one" in
            master) [ -e /etc/dlq/master.toml ] || say "next: dlq-master init (see docs/running/install.md)" ;;
            node) [ -e /var/lib/dlq-agent/identity.crt ] || say "next: dlq-nodeagent join (see docs/running/install.md)" ;;
            web) [ -e /etc/dlq/web.toml ] || say "next: /etc/dlq/web.toml (see docs/running/web-server.md)" ;;
        esac
    done
}

# The database as it is before a new release touches it.
copy_master() {
    [ -e /var/lib/dlq/dlq.db ] && has master || return 0
    say "backing up the master"
    systemctl start dlq-backup.service || fail "the backup failed; nothing has changed"
}

put_in_place() {
    share="$HOME_DIR/current/share/dlq"
    units=""
    ! has master || units="$units $MASTER_UNITS"
    ! has node || units="$units $NODE_UNITS"
    ! has web || units="$units $WEB_UNITS"
    for unit in $units; do
        if [ -e "$share/systemd/$unit" ]; then
            put "$share/systemd/$unit" "$UNIT_DIR/$unit"
        else
            take_away "$unit"
        fi
    done
    for command in dlq dlq-master dlq-nodeagent dlq-web dlq-notify; do
        ln -sfn "$HOME_DIR/current/bin/$command" "$BIN_DIR/$command"
    done
    for page in $MAN_PAGES; do
        mkdir -p "$(dirname "$MAN_DIR/$page")"
        ln -sfn "$HOME_DIR/current/share/man/$page" "$MAN_DIR/$page"
    done
    has master || rm -f "$BIN_DIR/dlq-master" "$BIN_DIR/dlq-notify"
    has node || rm -f "$BIN_DIR/dlq-nodeagent"
    has web || rm -f "$BIN_DIR/dlq-web"
    ! has master || make_account master
    ! has master || make_account notify
    ! has master || make_account hooks
    ! has web || make_account web
    for one in $role; do
        [ -e "$share/tmpfiles.d/dlq-$one.conf" ] || continue
        put "$share/tmpfiles.d/dlq-$one.conf" "/etc/tmpfiles.d/dlq-$one.conf"
        systemd-tmpfiles --create "/etc/tmpfiles.d/dlq-$one.conf"
    done
    systemctl daemon-reload
}

# A unit that this release does not know yet. Once a later release is back, start it by hand.
take_away() {
    [ -e "$UNIT_DIR/$1" ] || return 0
    say "this release has no $1: it is stopped"
    systemctl stop "$1"
    rm -f "$UNIT_DIR/$1"
}

make_account() {
    [ -e "$share/sysusers.d/dlq-$1.conf" ] || return 0
    put "$share/sysusers.d/dlq-$1.conf" "/etc/sysusers.d/dlq-$1.conf"
    systemd-sysusers "/etc/sysusers.d/dlq-$1.conf"
}

# Only what runs is restarted. `systemctl restart` returns when the daemon says READY, or fails.
restart() {
    for unit in dlq-master.service dlq-nodeagent.service dlq-web.service dlq-notify.service; do
        case "$(systemctl is-active "$unit" 2>/dev/null)" in
            active | activating | reloading) ;;
            *) continue ;;
        esac
        say "restarting $unit"
        systemctl restart "$unit" || return 1
    done
}

# A job's release stays while the job runs: its stand-ins for other programs lie there too.
remove_old_releases() {
    in_use=$(for pid in $(pgrep -x dlq-shim); do readlink "/proc/$pid/exe" || true; done)
    for path in "$HOME_DIR"/releases/*; do
        case "$in_use" in *"$path/"*) continue ;; esac
        name=$(basename "$path")
        [ "$name" = "$(release_of current)" ] || [ "$name" = "$(release_of previous)" ] || rm -rf "$path"
    done
}

# --- roll back ----------------------------------------------------------------------------------

roll_back() {
    role=$(cat "$HOME_DIR/roles")
    release=$(release_of previous)
    [ -n "$release" ] || fail "there is no release before $(release_of current)"
    check_release "$HOME_DIR/releases/$release"
    point_to "$release"
}

# --- uninstall ----------------------------------------------------------------------------------

uninstall() {
    jobs=$(pgrep -c -x dlq-shim || true)
    if [ "${jobs:-0}" -gt 0 ] && [ -z "$force" ]; then
        fail "$jobs ranks of jobs run here: drain the node first (dlq admin node drain), or --force"
    fi
    if [ -e "$UNIT_DIR/dlq-jobs.service" ]; then
        # It refuses to be stopped, for the sake of the jobs; now there are none, or they may go.
        mkdir -p /run/systemd/system/dlq-jobs.service.d
        printf '[Unit]\nRefuseManualStop=no\n' >/run/systemd/system/dlq-jobs.service.d/uninstall.conf
        systemctl daemon-reload
    fi
    for unit in dlq-hooks.socket dlq-provider.socket dlq-notify.service dlq-backup.timer dlq-web.socket dlq-web.service dlq-login.socket dlq-master.service dlq-nodeagent.service dlq-jobs.service; do
        [ -e "$UNIT_DIR/$unit" ] || continue
        systemctl disable --quiet "$unit" 2>/dev/null || true
        systemctl stop "$unit"
    done
    # systemd keeps a group for the instances of a template, and instances may still run in it.
    systemctl stop 'system-dlq\x2dhooks.slice' 'system-dlq\x2dprovider.slice' 2>/dev/null || true
    for unit in $MASTER_UNITS $NODE_UNITS $WEB_UNITS; do
        rm -f "$UNIT_DIR/$unit"
        [ -z "$purge" ] || rm -rf "$UNIT_DIR/$unit.d"
    done
    rm -rf /run/systemd/system/dlq-jobs.service.d
    systemctl daemon-reload
    systemctl reset-failed 'dlq-*' 2>/dev/null || true
    rm -f /etc/sysusers.d/dlq-master.conf /etc/tmpfiles.d/dlq-master.conf /etc/tmpfiles.d/dlq-node.conf
    rm -f /etc/sysusers.d/dlq-web.conf /etc/tmpfiles.d/dlq-web.conf /etc/sysusers.d/dlq-notify.conf /etc/sysusers.d/dlq-provider.conf /etc/sysusers.d/dlq-hooks.conf
    rmdir --ignore-fail-on-non-empty /etc/sysusers.d 2>/dev/null || true
    for command in dlq dlq-master dlq-nodeagent dlq-web dlq-notify; do
        [ ! -L "$BIN_DIR/$command" ] || rm -f "$BIN_DIR/$command"
    done
    for page in $MAN_PAGES; do
        rm -f "$MAN_DIR/$page"
        rmdir --ignore-fail-on-non-empty "$(dirname "$MAN_DIR/$page")" 2>/dev/null || true
    done
    remove_groups
    end_helpers
    rm -rf "$HOME_DIR" /run/dlq /run/dlq-web
    [ -z "$purge" ] || remove_state
    [ -n "$purge" ] || say "kept: /etc/dlq, /var/lib/dlq, /var/lib/dlq-agent, /var/lib/dlq-web, /var/lib/dlq-notify, /var/lib/dlq-provider, /var/backups/dlq (--purge removes them)"
    say "removed"
}

# Empty control groups that systemd did not make: on v1 it has none in the freezer.
# Helpers of users (`dlq` starts them) would end by themselves a few seconds after their files are gone.
end_helpers() {
    pkill -KILL -f "^$HOME_DIR/releases/[^ ]+ $HOME_DIR/releases/[^ ]+/dlq-python slurm serve " || true
}

remove_groups() {
    [ ! -d /sys/fs/cgroup/freezer/dlq ] ||
        find /sys/fs/cgroup/freezer/dlq -depth -type d -exec rmdir {} \; 2>/dev/null || true
}

remove_state() {
    rm -rf /etc/dlq /var/lib/dlq /var/lib/dlq-agent /var/lib/dlq-web /var/lib/dlq-notify /var/lib/dlq-provider /var/backups/dlq
    for account in dlq dlq-web dlq-notify dlq-provider dlq-hooks; do
        ! getent passwd "$account" >/dev/null || userdel "$account"
        ! getent group "$account" >/dev/null || groupdel "$account"
    done
}

# --- words --------------------------------------------------------------------------------------

has() {
    case " $role " in *" $1 "*) return 0 ;; *) return 1 ;; esac
}

release_of() {
    [ ! -L "$HOME_DIR/$1" ] || basename "$(readlink "$HOME_DIR/$1")"
}

# By rename: there is no instant without the link.
link() {
    ln -sfn "releases/$1" "$HOME_DIR/.$2.next"
    mv -T "$HOME_DIR/.$2.next" "$HOME_DIR/$2"
}

put() {
    mkdir -p "$(dirname "$2")"
    cp "$1" "$2.next"
    chmod 0644 "$2.next"
    mv "$2.next" "$2"
}

say() {
    echo "dlq: $*"
}

fail() {
    echo "dlq: $*" >&2
    exit 1
}

# The whole file is read before anything is done: an uninstall removes it, an upgrade replaces it.
main "$@"
exit
