"""The Dockerfile and the Kubernetes and Modal examples, as far as they can be tried here."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml
from dockerfile_parse import DockerfileParser  # type: ignore[import-untyped]

from serving.entity import cli

ROOT = Path(__file__).resolve().parent.parent
KUBERNETES = "1.34"


class TestDockerfile:
    def instructions(self) -> list[tuple[str, str]]:
        parser = DockerfileParser(path=str(ROOT / "Dockerfile"))
        return [(i["instruction"], i["value"]) for i in parser.structure]

    def values(self, wanted: str) -> list[str]:
        return [value for name, value in self.instructions() if name == wanted]

    def test_it_starts_one_worker_as_nobody_with_a_health_check(self) -> None:
        assert self.values("USER") == ["formline"]
        assert "/health" in self.values("HEALTHCHECK")[0]
        assert "--workers" not in self.values("ENTRYPOINT")[0]

    def test_what_it_copies_exists_and_is_not_ignored(self) -> None:
        sources = [value.split()[0] for value in self.values("COPY")]
        assert {s.split("/")[0] for s in sources} == {"serving", "${VERSION}"}
        kept = (ROOT / ".dockerignore").read_text().splitlines()
        assert "!serving" in kept
        assert "!" + self.values("ARG")[0].partition("=")[2].split("/")[0] in kept

    def test_its_command_line_is_one_that_the_entity_takes(self) -> None:
        words = re.findall(r'"([^"]+)"', self.values("ENTRYPOINT")[0])
        assert words[:3] == ["python", "-m", "serving.entity"]
        from typer.main import get_command

        known = {option for p in get_command(cli).params for option in p.opts}
        assert {word for word in words if word.startswith("--")} <= known

    def test_the_base_image_has_the_runtimes_python(self) -> None:
        assert self.values("FROM") == ["python:3.11-slim-bookworm"]


class TestKubernetes:
    documents: tuple[dict[str, Any], ...] = tuple(
        yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yaml").read_text())
    )

    def of(self, kind: str) -> dict[str, Any]:
        return next(document for document in self.documents if document["kind"] == kind)

    def test_it_matches_the_published_schemas(self) -> None:
        for document in self.documents:
            if document["kind"] != "ScaledObject":  # KEDA's own kind has no schema in Kubernetes
                kubernetes_validate.validate(document, KUBERNETES, strict=True)

    def test_labels_ports_and_names_meet(self) -> None:
        deployment = self.of("Deployment")["spec"]
        labels = deployment["template"]["metadata"]["labels"]
        assert deployment["selector"]["matchLabels"] == labels
        assert self.of("Service")["spec"]["selector"] == labels
        assert self.of("PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == labels
        target = self.of("ScaledObject")["spec"]["scaleTargetRef"]["name"]
        assert target == self.of("Deployment")["metadata"]["name"]

    def test_a_gpu_and_all_three_probes(self) -> None:
        container = self.of("Deployment")["spec"]["template"]["spec"]["containers"][0]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert container[probe]["httpGet"]["path"] == "/health"

    def test_it_scales_on_a_metric_that_the_engine_has(self) -> None:
        query = self.of("ScaledObject")["spec"]["triggers"][0]["metadata"]["query"]
        metric = re.search(r"formline_\w+", query)
        assert metric is not None
        sources = "".join(path.read_text() for path in (ROOT / "model").glob("*.py"))
        assert f'"{metric.group()}"' in sources


@pytest.fixture
def modal_app() -> ModuleType:
    spec = importlib.util.spec_from_file_location("modal_app", ROOT / "deploy" / "modal_app.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class TestModal:
    def test_it_declares_one_app_with_the_endpoint(self, modal_app: ModuleType) -> None:
        import modal

        assert isinstance(modal_app.app, modal.App)
        assert modal_app.app.name == "formline"
        assert isinstance(modal_app.Endpoint, modal.Cls)

    def test_its_folders_are_the_ones_of_the_dockerfile(self, modal_app: ModuleType) -> None:
        dockerfile = (ROOT / "Dockerfile").read_text()
        assert f"ARG VERSION={modal_app.VERSION.relative_to(ROOT)}" in dockerfile
        assert f"COPY ${{VERSION}} {modal_app.INSIDE}" in dockerfile
        assert (modal_app.PROJECT / "serving" / "scoring_app.py").is_file()
