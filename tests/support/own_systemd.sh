#!/bin/sh
# Become the systemd of a machine of its own: process 1 of a pid namespace, on a root that nobody else has.
#
# systemd empties /tmp, makes directories and stops what it finds, so it must find nothing of the machine: the root is an
# overlay whose changes go to memory, /tmp, /run, /dev and the units are fresh, and the old root is let go of before
# systemd starts. What has to be true of that is checked here and, before the word to go on comes, from outside as well.
#
# own_systemd.sh WORK ROOT MARKER PYTHON PATHS
#   WORK    an empty directory, for mounts; in this mount namespace only
#   ROOT    the repository
#   MARKER  a file in the machine's /tmp, which must not be seen from inside
#   PYTHON  prefix of the interpreter
#   PATHS   where it imports from, one folder each, with colons between
set -eu
work=$1 repository=$2 marker=$3 python=$4 paths=$5
fail() { echo "refused: $1"; exit 1; }

test "$$" = 1 || fail "this is not the first process of a pid namespace"
test -e "$marker" || fail "there is no marker to be missed"
mount --make-rprivate /

mount -t tmpfs -o mode=755 none "$work"
mkdir "$work/upper" "$work/work" "$work/root"
mount -t overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/work" none "$work/root"
root=$work/root

for folder in run tmp var/tmp dev etc/systemd/system usr/lib/systemd/system-generators usr/local opt; do
    mkdir -p "$root/$folder"
    mount -t tmpfs -o mode=755 none "$root/$folder"
done
# Targets are empty with what is linked into them out of sight
for folder in "$root"/usr/lib/systemd/system/*.wants; do mount -t tmpfs -o mode=755 none "$folder"; done
chmod 1777 "$root/tmp" "$root/var/tmp"
mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 none "$root/sys/fs/cgroup"
for node in "null 1 3" "zero 1 5" "full 1 7" "random 1 8" "urandom 1 9" "tty 5 0"; do
    mknod -m 666 "$root/dev/${node%% *}" c ${node#* }
done
mkdir "$root/dev/shm" "$root/dev/pts" "$root/run/lock"
mount -t tmpfs -o mode=1777 none "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666 none "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
: > "$root/etc/fstab"

mkdir -p "$root/opt/python" "$root/usr/local/bin"
mount --bind -o ro "$python" "$root/opt/python"
number=0 imported=
set -f; IFS=:
for folder in $paths; do
    mkdir "$root/opt/$number"
    mount --bind -o ro "$folder" "$root/opt/$number"
    imported=$imported${imported:+:}/opt/$number
    number=$((number + 1))
done
unset IFS; set +f
for program in kvledger python; do
    module= && test $program = python || module="-m kvledgerd.cli"
    printf '#!/bin/sh\nexport PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=%s\nexec /opt/python/bin/python3 %s "$@"\n' \
        "$imported" "$module" > "$root/usr/local/bin/$program"
    chmod 755 "$root/usr/local/bin/$program"
done
make -s -C "$repository" install-units "DESTDIR=$root"
for target in sysinit basic kvledger-test; do
    printf '[Unit]\nDefaultDependencies=no\n' > "$root/etc/systemd/system/$target.target"
done
echo Wants=systemd-journald.service >> "$root/etc/systemd/system/kvledger-test.target"

# Nothing that tidies folders up or turns the kernel's audit on is ever to start, whoever asks for it
for unit in systemd-tmpfiles-setup.service systemd-tmpfiles-setup-dev.service systemd-tmpfiles-clean.service \
    systemd-tmpfiles-clean.timer systemd-journald-audit.socket; do
    ln -s /dev/null "$root/etc/systemd/system/$unit"
done

cd "$root"
mkdir -p opt/old
pivot_root . opt/old
cd /
umount -l /opt/old
rmdir /opt/old

kind() { stat -f -c %T "$1"; }
test -z "$(ls -A /usr/lib/systemd/system/sysinit.target.wants)" || fail "systemd would set a machine up"
test "$(kind /)" = overlayfs || fail "the root is no overlay"
for folder in /tmp /var/tmp /run /dev; do test "$(kind $folder)" = tmpfs || fail "$folder is not its own"; done
! touch /proc/sys/kernel/hostname 2>/dev/null || fail "settings of the machine's kernel can be written"
test ! -e "$marker" || fail "the machine's /tmp can be seen"
grep -q " / / .* overlay " /proc/self/mountinfo || fail "the root is none of this namespace"
test -z "$(ls -A /tmp /var/tmp /run/systemd 2>/dev/null | grep -v :)" || fail "something lies in what has to be fresh"
echo ready
read -r word
test "$word" = go || fail "nobody said go"

systemd-sysusers /usr/local/lib/sysusers.d/kvledger.conf
systemd-tmpfiles --create /usr/local/lib/tmpfiles.d/kvledger.conf
exec < /dev/null > /dev/null 2>&1
exec env -i container=kvledger-test PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin \
    /lib/systemd/systemd --unit=kvledger-test.target --log-target=journal --show-status=no
