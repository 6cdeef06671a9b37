#!/bin/sh
# A network namespace for each agent: from it the broker's agent door is reached, and nothing else.
# docs/operating/namespaces.md explains it; tests/system/test_netns.py runs this very file.
#
#   netns.sh host                            first: the broker's address and the rules (refused while the rules stand)
#   netns.sh add NAME N                      a namespace. N, from 1 to 254, numbers its interface and its addresses
#   netns.sh run NAME UID FOLDER COMMAND...  run a command in it as UID, who sees FOLDER, /usr, /etc and $SEES
#   netns.sh remove NAME N
#   netns.sh off                             last
#
# Needs root, iproute2, nftables and util-linux.
set -eu
NET=${NET:-10.203}        # agent N has $NET.N.2, and the host $NET.N.1 towards it
PORT=${PORT:-8443}
DOOR=$NET.0.1             # lever.yaml: `listen: 10.203.0.1:8443`
SEES=${SEES:-}            # more folders that agents may read: where `lever` is, if that is not below /usr

host() {
  # create: never over rules that stand. The agents in the set would be lost.
  nft -f - <<RULES
create table inet lever
table inet lever {
  # Which agent comes from where: its interface, its address, the door that it may knock at.
  set agents { typeof iifname . ip saddr . ip daddr
  }
  # Before the host's own rules, which still decide what is accepted here. IPv6 is in no set: it is dropped.
  chain input {
    type filter hook input priority filter - 10; policy accept;
    iifname . ip saddr . ip daddr @agents tcp dport $PORT accept
    iifname "lever-*" counter drop
  }
  # Docker and others turn forwarding on for the whole host.
  chain forward {
    type filter hook forward priority filter - 10; policy accept;
    iifname "lever-*" counter drop
    oifname "lever-*" counter drop
  }
}
RULES
  ip address replace "$DOOR/32" dev lo
}

add() {
  name=$1 outside=lever-$2 us=$NET.$2.1 them=$NET.$2.2
  ip netns add "$name"
  ip link add "$outside" type veth peer name eth0 netns "$name"
  # A source address that is not routed back to this interface is forged.
  echo 1 >"/proc/sys/net/ipv4/conf/$outside/rp_filter"
  # Without it the host tells by ARP which other addresses it has.
  echo 1 >"/proc/sys/net/ipv4/conf/$outside/arp_ignore"
  ip address add "$us/30" dev "$outside"
  ip link set "$outside" up
  ip -n "$name" link set lo up
  ip -n "$name" address add "$them/30" dev eth0
  ip -n "$name" link set eth0 up
  # One route, to one address; no default route.
  ip -n "$name" route add "$DOOR" via "$us"
  nft add element inet lever agents "{ \"$outside\" . $them . $DOOR }"
}

run() {
  name=$1
  shift
  # Its own processes too: through /proc/PID/root one sees the files of another.
  exec ip netns exec "$name" unshare --pid --ipc --uts --fork --kill-child sh "$0" view "$@"
}

# The second half of run, in the namespaces: a root folder with what the agent may see and nothing else.
view() {
  uid=$1 folder=$2
  shift 2
  root=/mnt
  mount -t tmpfs -o mode=755 tmpfs "$root"
  mkdir "$root/dev" "$root/proc"
  mkdir -m 1777 "$root/tmp"
  mount -t proc proc "$root/proc"
  for link in /bin /sbin /lib /lib64; do [ ! -L "$link" ] || cp -P "$link" "$root$link"; done
  for device in null zero random urandom; do
    : >"$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
  done
  for place in /usr /etc $SEES; do
    mkdir -p "$root$place"
    mount --bind -o ro "$place" "$root$place"
  done
  mkdir -p "$root$folder"
  mount --bind "$folder" "$root$folder"
  cd "$root"
  # setsid: nothing can be typed into the caller's terminal from inside. setpriv: no capability and no way to one, for
  # root of a namespace could leave it or change its addresses.
  exec env -i PATH="$PATH" HOME="$folder" LANG=C.UTF-8 chroot "$root" setsid --wait setpriv --reuid="$uid" \
    --regid="$uid" --clear-groups --no-new-privs --inh-caps=-all --ambient-caps=-all --bounding-set=-all -- "$@"
}

remove() {
  nft delete element inet lever agents "{ \"lever-$2\" . $NET.$2.2 . $DOOR }"
  # The interface goes now; the namespace itself once its last process has ended.
  ip link delete "lever-$2"
  ip netns delete "$1"
}

off() {
  ip address delete "$DOOR/32" dev lo
  nft delete table inet lever
}

case ${1-} in
  host | add | run | view | remove | off) "$@" ;;
  *) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
