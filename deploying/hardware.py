"""Databricks' workload types and the GPUs behind them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from databricks.sdk.service.serving import ServingModelWorkloadType

WorkloadType = ServingModelWorkloadType
WorkloadSize = Literal["Small", "Medium", "Large"]
GIB = 1 << 30
CPU_MODEL_GIB = 4.0  # what Databricks gives a model on the workload type CPU


@dataclass(frozen=True)
class Gpu:
    """One card: memory that CUDA reports, in GiB, and whether it computes in bfloat16."""

    name: str
    memory_gib: float
    bfloat16: bool = True


@dataclass(frozen=True)
class Hardware:
    """The cards of a workload type."""

    gpu: Gpu
    count: int = 1


T4, A10G = Gpu("T4", 14.6, bfloat16=False), Gpu("A10G", 22.1)
A100, H100 = Gpu("A100 80 GB", 79.2), Gpu("H100", 79.2)
HARDWARE: dict[WorkloadType, Hardware] = {
    WorkloadType.GPU_SMALL: Hardware(T4),
    WorkloadType.GPU_MEDIUM: Hardware(A10G),
    WorkloadType.GPU_LARGE: Hardware(A100),
    WorkloadType.GPU_XLARGE: Hardware(H100),
    WorkloadType.GPU_XLARGE_8: Hardware(H100, 8),
    WorkloadType.MULTIGPU_MEDIUM: Hardware(A10G, 4),
}
