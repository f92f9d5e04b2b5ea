"""What docs/sdk.md shows works as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from structured_server import client
from structured_server.client import errors

PAGE = (Path(__file__).parents[2] / "docs" / "sdk.md").read_text("utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_each_block_runs(number: int, embedded_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = BLOCKS[number].replace("http://127.0.0.1:8080", embedded_url)
    block = compile(code, f"docs/sdk.md, block {number}", "exec", dont_inherit=True)
    exec(block, {"__name__": "__main__"})  # noqa: S102  as a reader would run it
    printed = capsys.readouterr().out
    assert printed.strip()
    assert "failed" not in printed


def test_every_error_is_on_the_page() -> None:
    told = {each.__name__ for each in vars(errors).values() if isinstance(each, type)}
    assert set() == {name for name in told & {*client.__all__} if f"`{name}`" not in PAGE}
