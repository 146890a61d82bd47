"""What can be known to fail before anything is sent: each check with what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from deploying.desired import SECRET, DesiredEndpoint
from deploying.dtypes import (
    UNSTABLE_IN_FLOAT16,
    compute_dtype,
    stored_dtype,
    weights_in_memory,
)
from deploying.hardware import CPU_MODEL_GIB, GIB, HARDWARE, Gpu, Hardware, WorkloadType
from deploying.kv_cache import CannotTell
from deploying.memory import estimate, gpus_needed
from deploying.registered import Version, read_version
from deploying.requirements import CannotAsk, resolve, wrong_runtime
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
    if local:
        checks.extend(_local_secrets(desired))
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
        detail = f"the registry says {version.status}; wait for it, or register it again"
        yield Check(f"{label} is ready", "failed", detail)
        return
    yield Check(f"{label} is ready", "ok", "in the registry")
    yield _signature(label, version)
    if not local:
        yield _runtime(label, version, desired.workload_type)
        yield _requirements(label, version, check_requirements)
        yield from _memory(f"{label} fits {desired.workload_type.value}", version, desired)


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


def _runtime(label: str, version: Version, workload: WorkloadType) -> Check:
    gpu = workload in HARDWARE
    fault = wrong_runtime(version.requirements, gpu=gpu)
    detail = fault or f"pinned for {'GPUs' if gpu else 'CPUs'}"
    return Check(f"{label} suits {workload.value}", "failed" if fault else "ok", detail)


def _requirements(label: str, version: Version, wanted: bool) -> Check:
    name = f"{label} requirements resolve"
    if not wanted:
        return Check(name, "skipped", "asked to")
    if not version.requirements:
        return Check(name, "failed", "the version lists none; register it with pinned requirements")
    try:
        faults = resolve(version.requirements, version.python)
    except CannotAsk as reason:
        return Check(name, "warning", f"{reason}; --no-check-requirements does not ask")
    if faults:
        detail = "; ".join(faults)
        return Check(name, "failed", f"{detail}. Register it again with pins that fit together")
    return Check(name, "ok", f"{len(version.requirements)} pins, Python {version.python}")


def _memory(name: str, version: Version, desired: DesiredEndpoint) -> Iterator[Check]:
    """Against the card, by dtype and quantization; against the limit on the workload type CPU."""
    hardware = HARDWARE.get(desired.workload_type)
    if hardware is not None:
        yield from _gpu_memory(name, version, hardware)
    elif desired.workload_type is WorkloadType.CPU:
        gib = weights_in_memory(version) / GIB
        detail = f"weights {gib:.1f} GiB, of the {CPU_MODEL_GIB:.0f} GiB that Databricks gives"
        if gib < CPU_MODEL_GIB:
            yield Check(name, "ok", detail)
        else:
            yield Check(name, "failed", f"{detail}; choose a GPU workload type")


def _gpu_memory(name: str, version: Version, hardware: Hardware) -> Iterator[Check]:
    wanted, there = gpus_needed(version), hardware.count
    if wanted > there:
        detail = f"its engine arguments ask for {wanted} GPUs, and it has {there}; choose another"
        yield Check(name, "failed", detail)
        return
    if wanted < there:
        detail = f"it uses {wanted} of {there}; register it with tensor_parallel_size={there}"
        yield Check(f"{name}: all GPUs used", "warning", detail)
    yield from _dtype(f"{name}: dtype", version, hardware.gpu)
    try:
        found = estimate(version, hardware.gpu)
    except CannotTell as reason:
        yield Check(name, "warning", f"cannot tell: {reason}")
        return
    advice = "; lower max_model_len, quantize, or choose a larger workload type"
    yield Check(
        name, "ok" if found.fits else "failed", found.describe() + (advice * (not found.fits))
    )


def _dtype(name: str, version: Version, gpu: Gpu) -> Iterator[Check]:
    """Whether the card and the architecture can compute in the dtype; nothing when all is well."""
    stored, dtype = stored_dtype(version.hf_config), compute_dtype(version, gpu)
    if dtype == "bfloat16" and not gpu.bfloat16:
        detail = f"{gpu.name} has no bfloat16; register it without dtype, or with dtype=float16"
        yield Check(name, "failed", detail)
    elif dtype == "float16" and version.hf_config.get("model_type") in UNSTABLE_IN_FLOAT16:
        detail = f"vLLM refuses float16 for {version.hf_config['model_type']}; leave dtype out"
        yield Check(name, "failed", detail)
    elif stored == "bfloat16" and not gpu.bfloat16:
        yield Check(name, "warning", f"{gpu.name} has no bfloat16: vLLM computes in {dtype}")
