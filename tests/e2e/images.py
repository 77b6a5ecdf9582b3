"""Images for the tests: a tiny one around busybox, made here, and the real ones that
scripts/quickstart has made.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

BUSYBOX = Path("/usr/bin/busybox")
TINY = "tiny:1"
# Where the real images are, if anywhere; read before the tests' own daemons change the environment.
QUICKSTART_STATE = Path(
    os.environ.get("DSEC_E2E_STATE") or os.environ.get("DSEC_STATE") or "/var/lib/dsec"
)
APPLETS = """
    [ ash awk base64 basename cat chmod chown chroot cksum cmp cp cut date dd df diff dirname dmesg
    du echo env expr false find free grep head hostname id kill killall ln ls mkdir mkfifo mknod
    mount mv nc nproc od pgrep pidof ping pivot_root printenv printf ps pwd readlink reboot rm rmdir
    sed seq setsid sh sha256sum sleep sort stat stty sync sysctl tail tee test timeout top touch tr
    true tty umount uname uniq unshare uptime vi wc wget which whoami xargs yes
"""


def build_tiny(root: Path) -> Path:
    """The smallest tree in which shell scripts run: one static binary, users, and the usual
    directories.
    """
    for directory in ("bin", "dev", "etc", "home/agent", "proc", "root", "sys", "tmp", "var"):
        (root / directory).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    shutil.copy2(BUSYBOX, root / "bin" / "busybox")
    for applet in APPLETS.split():
        (root / "bin" / applet).symlink_to("busybox")
    (root / "etc" / "passwd").write_text(
        "root:x:0:0:root:/root:/bin/sh\n"
        "agent:x:1000:1000::/home/agent:/bin/sh\n"
        "nobody:x:65534:65534::/:/bin/false\n"
    )
    (root / "etc" / "group").write_text("root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n")
    os.chown(root / "home" / "agent", 1000, 1000)
    return root


def missing_images(references: list[tuple[str, str]]) -> str:
    """Why the (kind, NAME:TAG)s cannot be used here, or nothing."""
    manifests = QUICKSTART_STATE / "images" / "manifests"
    for kind, reference in references:
        name, _, tag = reference.partition(":")
        if not (manifests / kind / f"{name}@{tag or 'latest'}.json").exists():
            return f"no image {reference} in {manifests}; scripts/quickstart makes it"
    return ""


def demo() -> dict[str, object]:
    """What scripts/build-demo-images found out in a plain chroot."""
    return json.loads((QUICKSTART_STATE / "demo-reference.json").read_text())
