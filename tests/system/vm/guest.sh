# SPDX-License-Identifier: Apache-2.0
# Helpers for the scripts beside it, to source: a virtual machine (qemu, software emulation) that runs programs of the
# build tree from an initial file system. Needs qemu-system-x86, busybox-static and cpio.

me=${0##*/}

skip()
{
    echo "$me: skipped: $*"
    exit 77
}

# guest_tools TOOL...: these are here, or it is skipped.
guest_tools()
{
    PATH=$PATH:/usr/sbin:/sbin
    for tool in qemu-system-x86_64 cpio gzip ldd timeout "$@"; do
        command -v "$tool" >/dev/null || skip "no $tool here"
    done
    busybox=$(command -v busybox) || skip "no busybox here"
    ldd "$busybox" 2>&1 | grep -q 'not a dynamic' || skip "$busybox is not static (package busybox-static)"
}

# guest_kernel DIRECTORY: of a Debian kernel image, unpacked: boot/vmlinuz-* and lib/modules. Sets image, version.
guest_kernel()
{
    image=
    for candidate in "${1%/}"/boot/vmlinuz-*; do
        [ ! -r "$candidate" ] || image=$candidate
    done
    [ -n "$image" ] || skip "no kernel image in '${1:-/}boot': see the head of this file"
    # shellcheck disable=SC2034 # read by who sources this
    version=${image##*/vmlinuz-}
}

# guest_begin APPLET...: a scratch directory and in it a root with these applets of busybox.
guest_begin()
{
    scratch=$(mktemp -d /tmp/twill-XXXXXX)
    trap 'rm -rf "$scratch"' EXIT
    trap 'exit 1' HUP INT TERM
    root=$scratch/root
    mkdir -p "$root/bin" "$root/proc" "$root/sys" "$root/dev" "$root/tmp" "$root/run" "$root/etc"
    cp "$busybox" "$root/bin/busybox"
    for applet in sh mount mkdir sleep poweroff cat ls timeout grep dmesg ifconfig "$@"; do
        ln -s busybox "$root/bin/$applet"
    done
    unwinder=/lib/$(uname -m)-linux-gnu/libgcc_s.so.1 # for back-traces
    [ ! -e "$unwinder" ] || guest_add "$unwinder"
    echo '127.0.0.1 localhost' >"$root/etc/hosts"
    echo 'root:x:0:0:root:/:/bin/sh' >"$root/etc/passwd"
}

# guest_add FILE...: with what it is linked with, at the places they have here.
guest_add()
{
    for file in "$@"; do
        mkdir -p "$root${file%/*}"
        cp -L "$file" "$root$file"
        ldd "$file" 2>/dev/null | grep -oE '/[^ )]+' | while read -r library; do
            [ -e "$root$library" ] || { mkdir -p "$root${library%/*}" && cp -L "$library" "$root$library"; }
        done
    done
}

# guest_pack: /init is the standard input after the mounts; it need not power off. Makes $scratch/initrd.gz.
guest_pack()
{
    {
        cat <<'INIT'
#!/bin/sh
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
exec </dev/ttyS0 >/dev/ttyS0 2>&1
mkdir -p /dev/shm; mount -t tmpfs tmpfs /dev/shm; mount -t tmpfs tmpfs /run
ifconfig lo 127.0.0.1 up
INIT
        cat
        echo 'poweroff -f'
    } >"$root/init"
    chmod +x "$root/init"
    (cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$scratch/initrd.gz"
}

# guest_boot SECONDS WORDS ARGUMENT...: WORDS are more of the kernel's command line, which /init can read. What the
# machine says goes to $scratch/log, and is shown.
guest_boot()
{
    boot_patience=$1 boot_words=$2
    shift 2
    timeout "$boot_patience" qemu-system-x86_64 -accel tcg,thread=multi -nodefaults -no-reboot -display none \
        -serial stdio -kernel "$image" -initrd "$scratch/initrd.gz" \
        -append "console=ttyS0 panic=-1 quiet cryptomgr.notests $boot_words" "$@" </dev/null 2>"$scratch/qemu" | tr -d '\r' | tee "$scratch/log"
}
