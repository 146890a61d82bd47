"""One registered version on Modal: weights baked into the image at build, one GPU class.

    mlflow artifacts download -u models:/NAME/VERSION -d build/version
    modal deploy deploy/modal_app.py

The same model class as everywhere runs behind the same HTTP routes (serving.scoring_app). Tried:
importing it with the modal package, and its two methods, on this machine. Not tried: building the
image, a GPU there, a deployment.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import modal

if TYPE_CHECKING:
    from fastapi import FastAPI

PROJECT = Path(__file__).resolve().parent.parent
VERSION = PROJECT / "build" / "version"  # one downloaded version, weights and all
INSIDE = "/srv/version"
CONCURRENT_CALLS = 64
MINUTE = 60
EXECUTION_S = 5 * MINUTE

image = (
    modal.Image.debian_slim(python_version="3.11")
    .apt_install("gcc", "libc6-dev")  # Triton compiles its kernels at the start
    .pip_install_from_requirements(str(VERSION / "requirements.txt"))
    .env({"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"})
    .add_local_dir(str(PROJECT / "serving"), "/root/serving", copy=True)
    .add_local_dir(str(VERSION), INSIDE, copy=True)  # at build, not at the first call
)
app = modal.App("formline", image=image)


@app.cls(
    gpu="A10G",
    timeout=EXECUTION_S,
    startup_timeout=30 * MINUTE,
    scaledown_window=15 * MINUTE,
    secrets=[modal.Secret.from_name("formline-tokens")],  # holds FORMLINE_SERVING_TOKENS
)
@modal.concurrent(max_inputs=CONCURRENT_CALLS)
class Endpoint:
    """One engine a container; all calls of the container share its batch."""

    @modal.enter()
    def load(self) -> None:
        """Load the version; Modal waits for this before it sends calls."""
        from serving.loading import load_served

        self.model: Any = load_served(INSIDE, EXECUTION_S)

    @modal.asgi_app()
    def web(self) -> FastAPI:
        """The routes: /invocations, /v1, /metrics and /health, behind bearer tokens."""
        import os

        from serving.scoring_app import build_scoring_app

        tokens = os.environ.get("FORMLINE_SERVING_TOKENS", "").split()
        if not tokens:
            raise ValueError("the secret formline-tokens has no FORMLINE_SERVING_TOKENS")
        return build_scoring_app(self.model, tokens)
