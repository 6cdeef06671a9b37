#!/bin/sh
# A throw-away machine: systemd as PID 1 over an overlay of this machine's root. tests/system/machine.py calls it inside a
# mount and a PID namespace of its own, so that its mounts and processes end with them and nothing of it can be left behind.
# usage: nspawn.sh NAME FOLDER "CGROUP_FOLDER ..." [systemd-nspawn option ...]    sends READY=1 to $NOTIFY_SOCKET when booted
set -eu
name=$1 folder=$2 cgroups=$3
shift 3
for cgroup in $cgroups; do echo 0 >"$cgroup/cgroup.procs"; done
mount -t tmpfs tmpfs "$folder"
mkdir "$folder/upper" "$folder/work" "$folder/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/upper,workdir=$folder/work" "$folder/root"
: >"$folder/root/etc/machine-id"
rm -rf "$folder"/root/etc/systemd/system/*.wants
ln -sf /lib/systemd/system/multi-user.target "$folder/root/etc/systemd/system/default.target"
# Not exec: as the first process of its PID namespace this shell reaps what the machine leaves to it.
systemd-nspawn --quiet --register=no --keep-unit --notify-ready=yes --private-network --console=pipe --link-journal=no \
  --machine="$name" --directory="$folder/root" "$@" --boot
