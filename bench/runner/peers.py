"""What people would use otherwise, each doing the nearest thing it has to one sandbox and one command."""
import json
import pathlib
import shutil
import subprocess

BWRAP = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true"]
DOCKER_IMAGE = "dsec-bench-base"


def bwrap() -> list[str]:
    return [shutil.which("bwrap"), *BWRAP[1:]]


def runc(scratch: pathlib.Path, rootfs: pathlib.Path, program: str) -> list[str]:
    """`runc run` of a bundle made by `runc spec`, with the program and no terminal. The container's name is free again
    when the command ends, so the same words can be run any number of times."""
    bundle = scratch / "runc"
    bundle.mkdir()
    tool = shutil.which("runc")
    subprocess.run([tool, "spec"], cwd=bundle, check=True)
    path = bundle / "config.json"
    spec = json.loads(path.read_text())
    spec["root"]["path"] = str(rootfs)
    spec["process"]["terminal"] = False
    spec["process"]["args"] = [program]
    path.write_text(json.dumps(spec))
    # Not the instance's own name: runc removes the groups called like its container when that ends.
    return [tool, "--root", str(scratch / "runc-root"), "run", "--bundle", str(bundle), f"{scratch.name}-runc"]


def docker(rootfs: pathlib.Path, program: str) -> tuple[list[str] | None, str]:
    """The command, or None and why there is none."""
    tool = shutil.which("docker")
    if tool is None:
        return None, "docker is not installed"
    if subprocess.run([tool, "info"], capture_output=True).returncode != 0:
        return None, "docker is installed, but its daemon does not answer"
    archive = subprocess.Popen(["tar", "-C", str(rootfs), "-c", "."], stdout=subprocess.PIPE)
    imported = subprocess.run([tool, "import", "-", DOCKER_IMAGE], stdin=archive.stdout, capture_output=True)
    archive.wait()
    if imported.returncode != 0:
        return None, "docker import failed"
    return [tool, "run", "--rm", "--network", "none", DOCKER_IMAGE, program], ""


def remove_docker_image() -> None:
    subprocess.run([shutil.which("docker"), "rmi", "-f", DOCKER_IMAGE], capture_output=True)
