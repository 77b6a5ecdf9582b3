# Sourced by scripts/test-kernel: starts QEMU, follows its console, bounds its time, takes the results over.
# Uses $root, $work, $build_dir, $results.
# shellcheck shell=bash disable=SC2154

console=$work/console.log

# qemu_command ACCELERATOR [kernel argument…]: sets the array `qemu`.
qemu_command() {
  local accelerator=$1 cpu=max,la57=off  # emulated page walks are dear: four levels, not five
  shift
  if [ "$accelerator" = kvm ]; then cpu=host; fi
  rm -f "$work/results.raw"
  truncate -s 64M "$work/results.raw"
  qemu=(
    qemu-system-x86_64 -accel "$accelerator" -cpu "$cpu" -machine q35 -smp 2 -m 3072 -nodefaults -no-reboot
    -display none -kernel "$work/vmlinuz" -initrd "$work/initramfs.cpio"
    -append "console=ttyS0 quiet panic=-1 dsec.root=$root dsec.build=$build_dir $*"
    -drive "file=$work/root.ext4,format=raw,if=virtio,snapshot=on,cache=unsafe"
    -drive "file=$work/payload.ext4,format=raw,if=virtio,read-only=on"
    -drive "file=$work/state.ext4,format=raw,if=virtio,snapshot=on,cache=unsafe"
    -drive "file=$work/results.raw,format=raw,if=virtio,cache=unsafe"
  )
}

# KVM is tried where the processor has it, but some hosts open /dev/kvm and then run no ordinary kernel: then TCG.
accelerators() {
  if grep -qwE 'vmx|svm' /proc/cpuinfo && [ -w /dev/kvm ]; then echo kvm; fi
  echo tcg
}

# follow PID SECONDS: shows the guest's stage lines until QEMU ends; kills it when the time is over or when no init
# shows up in 30 s.
follow() {
  local pid=$1 deadline=$((SECONDS + $2)) boot_deadline=$((SECONDS + 30)) shown=0 line alive=1
  while [ $alive = 1 ]; do
    kill -0 "$pid" 2>/dev/null || alive=0
    while read -r line; do
      shown=$((shown + 1))
      case $line in '=== '*) stage "${line#=== }" ;; esac
    done < <(tail -n "+$((shown + 1))" "$console" 2>/dev/null | tr -d '\r')
    if [ $alive = 1 ] && [ $SECONDS -ge $deadline ]; then
      echo "test-kernel: not done after $2 s" >&2
      kill -9 "$pid"
    elif [ $alive = 1 ] && [ $SECONDS -ge $boot_deadline ] && ! grep -q '^===' "$console"; then
      echo "test-kernel: does not boot" >&2
      kill -9 "$pid"
    fi
    sleep 0.3
  done
}

# machine_run SECONDS: boots, waits, leaves the guest's files in $results; fails unless every step in it passed.
machine_run() {
  local accelerator pid
  for accelerator in $(accelerators); do
    qemu_command "$accelerator"
    rm -f "$console"
    "${qemu[@]}" -serial "file:$console" </dev/null 9>&- &
    pid=$!
    trap 'kill -9 $pid 2>/dev/null' EXIT
    follow $pid "$1"
    wait $pid || true
    trap - EXIT
    if grep -q '^===' "$console"; then break; fi
  done
  cp "$console" "$results/kernel-console.log"
  if grep -nE 'Kernel panic|Oops|BUG:|general protection|soft lockup' "$console" >&2; then return 1; fi
  if ! tar -C "$results" -xf "$work/results.raw" 2>/dev/null || [ ! -e "$results/exit" ]; then
    tail -n 40 "$console" >&2
    echo "test-kernel: the guest handed over no results, see $console" >&2
    return 1
  fi
  [ "$(cat "$results/exit")" = 0 ] || { echo "test-kernel: failed, see $results/kernel-*.log" >&2; return 1; }
}

# The terminal becomes the guest's console; Ctrl-A X ends it.
machine_shell() {
  qemu_command tcg dsec.shell
  "${qemu[@]}" -serial mon:stdio
}
