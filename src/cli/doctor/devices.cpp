// Devices that kinds of sandboxes and ways of loading layers use.
#include <fcntl.h>
#include <linux/kvm.h>
#include <sys/ioctl.h>

#include "backends/sys/file.hpp"
#include "cli/doctor/capability.hpp"

namespace dsec::cli::doctor {
namespace {

base::result<std::string> ask_kvm() {
  DSEC_TRY(const auto device, sys::open_at(AT_FDCWD, "/dev/kvm", O_RDWR));
  const int version = ::ioctl(device.get(), KVM_GET_API_VERSION, 0);
  if (version < 0) return base::fail_errno("/dev/kvm does not answer");
  const sys::unique_fd machine(::ioctl(device.get(), KVM_CREATE_VM, 0));
  if (!machine) return base::fail_errno("/dev/kvm makes no machine");
  return "made a virtual machine, API version " + std::to_string(version);
}

}  // namespace

findings look_at_devices(const place&) {
  return {judge({"devices", "/dev/kvm", false,
                 "modprobe kvm_intel || modprobe kvm_amd; in a virtual machine switch nested "
                 "virtualisation on",
                 "container sandboxes, and all of this release: it has no other kind"},
                ask_kvm())};
}

}  // namespace dsec::cli::doctor
