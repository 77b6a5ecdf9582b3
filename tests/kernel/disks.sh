# Sourced by scripts/test-kernel: the kernel and the guest's disks, made from Debian's packages and the build.
# Uses $root, $work, $build_dir. Everything lies in build/kernel; the guest root is kept while its inputs are the same.
# shellcheck shell=bash disable=SC2154

kernel_package=linux-image-cloud-amd64
# What the payload calls besides the libraries of our programs, which are found by linked_packages.
guest_packages=(
  bash dash coreutils findutils grep sed libc-bin base-passwd tar mount util-linux procps iproute2 kmod
  python3 erofs-utils busybox-static ca-certificates
)

# linked_packages PROGRAM…: Debian packages of the shared libraries that the programs need.
linked_packages() {
  ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u | while read -r library; do
    # On a merged /usr, dpkg knows a file by the one path or by the other.
    { dpkg-query -S "$library" || dpkg-query -S "/usr$library"; } 2>/dev/null | head -1 | cut -d: -f1
  done | sort -u
}

# Debian's mirrors as this machine's apt knows them, for mmdebstrap.
debian_sources() {
  # shellcheck disable=SC2016
  apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' |
    sort -u
}

# Unpacks the kernel's package without installing it: $work/unpacked/{boot,lib/modules}.
unpack_kernel() {
  local name
  name=$(apt-cache depends "$kernel_package" | awk '$1 == "Depends:" && $2 ~ /^linux-image/ {print $2; exit}')
  [ -n "$name" ] || { echo "test-kernel: apt knows no $kernel_package; run apt-get update" >&2; return 1; }
  rm -rf "$work/unpacked" "$work"/linux-image-*.deb
  (cd "$work" && apt-get download -qq -o APT::Sandbox::User=root "$name")
  dpkg-deb -x "$work"/linux-image-*.deb "$work/unpacked"
}

# make_initramfs TREE RELEASE: busybox and the modules without which the root disk is not seen.
make_initramfs() {
  local tree=$1 release=$2 stage=$work/initramfs module
  rm -rf "$stage"
  mkdir -p "$stage/bin" "$stage/modules"
  cp /bin/busybox "$stage/bin/"
  install -m 755 "$root/tests/kernel/initramfs-init" "$stage/init"
  for module in virtio_pci virtio_blk; do
    chroot "$tree" modprobe --set-version "$release" --show-depends "$module"
  done | awk '$1 == "insmod" && !seen[$2]++ {print $2}' | while read -r module; do
    cp "$tree$module" "$stage/modules/"
    basename "$module" >>"$stage/modules/modules.order"
  done
  (cd "$stage" && find . | cpio --quiet -o -H newc) >"$work/initramfs.cpio"
}

# The guest's root: Debian packages extracted but not configured (nothing in them needs it here), ext4 as on servers.
make_root() {
  local tree=$work/root packages key release
  packages=$({ printf '%s\n' "${guest_packages[@]}"; linked_packages "${programs[@]}"; } | sort -u)
  key=$({ echo "$packages"; cat "$root"/tests/kernel/{disks.sh,initramfs-init,guest-init}; } | sha256sum)
  if [ "$(cat "$work/root.key" 2>/dev/null)" = "$key" ]; then return; fi
  rm -rf "$tree" "$work/root.key" "$work/root.ext4"
  unpack_kernel
  release=$(ls "$work/unpacked/lib/modules")
  debian_sources >"$work/sources.list"
  mmdebstrap --quiet --variant=extract --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
    --include="$(echo "$packages" | paste -sd,)" bookworm "$tree" "$work/sources.list" >"$work/mmdebstrap.log" 2>&1 ||
    { tail -20 "$work/mmdebstrap.log" >&2; return 1; }
  mkdir -p "$tree/lib/modules"
  mv "$work/unpacked/lib/modules/$release" "$tree/lib/modules/"
  chroot "$tree" depmod "$release"
  cp "$tree/usr/share/base-passwd/passwd.master" "$tree/etc/passwd"
  cp "$tree/usr/share/base-passwd/group.master" "$tree/etc/group"
  echo '127.0.0.1 localhost' >"$tree/etc/hosts"
  ln -sf /proc/self/mounts "$tree/etc/mtab"
  mkdir -p "$tree$root"
  install -m 755 "$root/tests/kernel/guest-init" "$tree/sbin/init"
  make_initramfs "$tree" "$release"
  cp "$work/unpacked/boot/vmlinuz-$release" "$work/vmlinuz"
  make_ext4 "$work/root.ext4" 6G "$tree"
  rm -rf "$tree" "$work/unpacked" "$work/initramfs" "$work"/linux-image-*.deb
  echo "$key" >"$work/root.key"
}

# make_ext4 FILE SIZE TREE: a sparse file with the tree in it.
make_ext4() {
  rm -f "$1"
  mke2fs -q -t ext4 -E assume_storage_prezeroed=1,root_owner=0:0 -d "$3" "$1" "$2" >/dev/null
}

# The payload: our tree as the tests see it, at the same path inside; only what they use, hard-linked.
make_payload() {
  local stage=$work/stage path
  rm -rf "$stage"
  mkdir -p "$stage"
  for path in "${payload[@]}"; do
    mkdir -p "$stage/$(dirname "${path#"$root"/}")"
    cp -al "$path" "$stage/$(dirname "${path#"$root"/}")/"
  done
  echo "$only" >"$stage/only"
  make_ext4 "$work/payload.ext4" 2G "$stage"
  rm -rf "$stage"
}

# The state directory of the guest's dsecd, with the demo's images: scripts/quickstart's where it has run, else made.
make_state() {
  local state=${DSEC_STATE:-/var/lib/dsec} stage=$work/stage
  [ -e "$state/demo-reference.json" ] || state=$work/state
  DSECD=$build_dir/src/dsecd DSEC_STATE=$state scripts/build-demo-images
  rm -rf "$stage"
  mkdir -p "$stage" && mkdir -m 700 "$stage/dsec"
  cp -a "$state/images" "$state/demo-reference.json" "$stage/dsec/"
  make_ext4 "$work/state.ext4" 4G "$stage"
  rm -rf "$stage"
}
