"""A script's console, apart from what libraries print."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_what_libraries_print_goes_to_the_log_and_the_console_stays(tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = (
        "import os, sys; from pathlib import Path\n"
        "from scripts.console import chatter_to, console\n"
        f"with chatter_to(Path({str(log)!r})):\n"
        "    os.system('echo child'); sys.stderr.write('library')\n"
        "    console.print('ours')\n"
        "print('after')\n"
    )
    done = run(program)
    assert done.returncode == 0
    assert done.stdout.split() == ["ours", "after"]
    assert done.stderr == ""
    assert {"child", "library"} <= set(log.read_text(encoding="utf-8").replace("ry", "ry ").split())


def test_a_failure_names_the_log(tmp_path: Path) -> None:
    program = (
        "from pathlib import Path; from scripts.console import chatter_to\n"
        f"with chatter_to(Path({str(tmp_path / 'log')!r})):\n    1 / 0\n"
    )
    done = run(program)
    assert done.returncode == 1
    assert "log" in done.stdout
    assert "ZeroDivisionError" in done.stderr


def run(program: str) -> subprocess.CompletedProcess[str]:
    """The program in a process of its own, whose descriptors it may turn elsewhere."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
