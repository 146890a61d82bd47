"""What can be known to fail before anything is sent: each check with what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from deploying.desired import SECRET, DesiredEndpoint
from deploying.hardware import HARDWARE
from deploying.memory import compute_dtype, estimate
from deploying.registered import Version, read_version
from deploying.requirements import resolve, wrong_runtime
from model.errors import ConfigError

Verdict = Literal["ok", "warning", "failed", "skipped"]


@dataclass(frozen=True)
class Check:
    """One finding. `failed` means that the deployment would fail too."""

    name: str
    verdict: Verdict
    detail: str


def preflight(
    desired: DesiredEndpoint, *, local: bool, check_requirements: bool = True
) -> list[Check]:
    """Every check on every version of `desired`.

    `local`: the target is a local endpoint, which runs in this machine's own environment, so
    that the workload's hardware and another machine's requirements do not matter.
    """
    checks: list[Check] = []
    for number in desired.traffic:
        checks.extend(_version_checks(desired, number, local, check_requirements))
    return checks


def failures(checks: list[Check]) -> list[Check]:
    """Those that would make the deployment fail."""
    return [check for check in checks if check.verdict == "failed"]


def _version_checks(
    desired: DesiredEndpoint, number: str, local: bool, check_requirements: bool
) -> Iterator[Check]:
    label = f"{desired.entity_name} {number}"
    try:
        version = read_version(desired.entity_name, number)
    except ConfigError as error:
        yield Check(f"{label} exists", "failed", error.message)
        return
    if version.status != "READY":
        yield Check(
            f"{label} is ready", "failed", f"the registry says {version.status}; wait for it"
        )
        return
    yield Check(f"{label} is ready", "ok", "in the registry")
    yield _signature(label, version)
    if local:
        yield from _local_secrets(desired)
        return
    yield _runtime(label, version, desired)
    yield _requirements(label, version, check_requirements)
    yield from _memory(label, version, desired)


def _signature(label: str, version: Version) -> Check:
    missing = [
        side
        for side, there in (("inputs", version.has_inputs), ("outputs", version.has_outputs))
        if not there
    ]
    if missing:
        detail = f"no {' and no '.join(missing)} in its signature; log it with a whole signature"
        return Check(f"{label} has a signature", "failed", detail)
    return Check(f"{label} has a signature", "ok", "inputs and outputs")


def _local_secrets(desired: DesiredEndpoint) -> Iterator[Check]:
    secrets = [name for name, value in desired.environment.items() if SECRET.match(value)]
    if secrets:
        detail = f"{', '.join(secrets)}: the local endpoint reads FORMLINE_SECRET_SCOPE_KEY"
        yield Check("secrets", "warning", detail)


def _runtime(label: str, version: Version, desired: DesiredEndpoint) -> Check:
    gpu = desired.workload_type != "CPU"
    fault = wrong_runtime(version.requirements, gpu=gpu)
    detail = fault or f"pinned for {'GPUs' if gpu else 'CPUs'}"
    return Check(f"{label} suits {desired.workload_type}", "failed" if fault else "ok", detail)


def _requirements(label: str, version: Version, wanted: bool) -> Check:
    name = f"{label} requirements resolve"
    if not wanted:
        return Check(name, "skipped", "asked to")
    if not version.requirements:
        return Check(name, "failed", "the version lists none; register it with pinned requirements")
    faults = resolve(version.requirements, version.python)
    if faults:
        return Check(name, "failed", "; ".join(faults))
    return Check(name, "ok", f"{len(version.requirements)} pins, Python {version.python}")


def _memory(label: str, version: Version, desired: DesiredEndpoint) -> Iterator[Check]:
    hardware = HARDWARE.get(desired.workload_type)
    if hardware is None:
        return
    name = f"{label} fits {desired.workload_type}"
    if not version.weights_bytes:
        yield Check(name, "warning", "no weights found in the version; cannot tell")
        return
    parallel = int(version.engine_args.get("tensor_parallel_size") or 1)
    if parallel > hardware.count:
        detail = f"tensor_parallel_size {parallel} needs as many GPUs; it has {hardware.count}"
        yield Check(name, "failed", detail)
        return
    if parallel < hardware.count:
        detail = f"uses {parallel} of {hardware.count}; set tensor_parallel_size={hardware.count}"
        yield Check(f"{name}: all GPUs used", "warning", detail)
    if compute_dtype(version) == "bfloat16" and not hardware.gpu.bfloat16:
        detail = f"{hardware.gpu.name} has no bfloat16; register with --engine-arg dtype=float16"
        yield Check(f"{name}: dtype", "failed", detail)
    found = estimate(version, hardware)
    advice = (
        "" if found.fits else "; lower max_model_len, quantize, or choose a larger workload_type"
    )
    yield Check(name, "ok" if found.fits else "failed", found.describe() + advice)
