"""docs/errors.md, the codes of src/base/error.hpp and the exceptions of the library agree, and each
code that comes over the wire becomes its exception and its exit code.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import libdsec
from fake_server import FakeServer
from libdsec import Sandbox, cli, errors

ROOT = Path(__file__).resolve().parents[3]
ROW = re.compile(
    r"^\| `(?P<code>\w+)` \| .* \| (?P<retry>yes|no) \| \d+ \| (?P<exit>\d+) "
    r"\| `(?P<exception>\w+)` \|$",
    re.MULTILINE,
)
ROWS = {m["code"]: m for m in ROW.finditer((ROOT / "docs" / "errors.md").read_text())}
CODE = re.compile(r"^  (\w+)\s*=\s*\d+,", re.MULTILINE)


def test_the_page_the_server_and_the_library_know_the_same_codes() -> None:
    server = set(CODE.findall((ROOT / "src" / "base" / "error.hpp").read_text())) - {"ok"}
    assert len(server) >= 20
    assert set(ROWS) == server == set(errors.ERROR_CLASSES)


@pytest.mark.parametrize("code", ROWS)
def test_an_error_of_the_wire_is_the_exception_and_exit_code_of_the_page(
    code: str, server: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    row = ROWS[code]
    retry = row["retry"] == "yes"
    cls = getattr(libdsec, row["exception"])
    for kind in ("getSandbox", "listSandboxes"):
        # `unavailable` is asked again for a while.
        server.next_error[kind] = (code, "it says so", "thing", retry)
        server.keep_errors = True
    with pytest.raises(cls) as raised:
        Sandbox.connect("e0-0000000000000001")
    assert type(raised.value) is cls
    assert (raised.value.code, raised.value.retryable) == (code, retry)
    assert (raised.value.object, raised.value.message) == ("thing", "it says so")
    assert (cls.code, cls.retryable) == (code, retry)
    assert cli.main(["ps"]) == int(row["exit"])
    assert f"({code})" in capsys.readouterr().err
