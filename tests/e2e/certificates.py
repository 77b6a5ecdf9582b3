"""Certificates for the tests, made by openssl(1) as an operator would."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def openssl(*arguments: str | Path) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr


@dataclass(frozen=True)
class Authority:
    """A certificate authority in a directory of its own."""

    directory: Path

    @classmethod
    def make(cls, directory: Path) -> Authority:
        directory.mkdir(exist_ok=True)
        openssl(
            "req", "-x509", *KEY, "-days", "2", "-subj", f"/CN=CA of {directory.name}",
            "-keyout", directory / "ca.key", "-out", directory / "ca.pem",
        )  # fmt: skip
        return cls(directory)

    @property
    def file(self) -> Path:
        return self.directory / "ca.pem"

    def issue(
        self, certificate: Path, key: Path, names: str = "IP:127.0.0.1,DNS:localhost", days: int = 2
    ) -> None:
        """Writes a server's certificate and key; with -1 days it has expired."""
        request, extensions = self.directory / "request.pem", self.directory / "extensions"
        extensions.write_text(f"subjectAltName={names}\n")
        openssl("req", "-new", *KEY, "-subj", "/CN=dsecd", "-keyout", key, "-out", request)
        openssl(
            "x509", "-req", "-in", request, "-CA", self.file,
            "-CAkey", self.directory / "ca.key", "-CAcreateserial", "-days", str(days),
            "-extfile", extensions, "-out", certificate,
        )  # fmt: skip
