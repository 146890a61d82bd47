"""The Dockerfile and the Kubernetes and Modal examples, as far as they can be tried here."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import mlflow.environment_variables
import mlflow.models.container
import pytest
import requests
import yaml
from dockerfile_parse import DockerfileParser  # type: ignore[import-untyped]
from starlette.testclient import TestClient

from serving.settings import Limits
from tests.live_endpoint import free_port, save_fake, wait_for

ROOT = Path(__file__).resolve().parent.parent
KUBERNETES = "1.34"


class TestDockerfile:
    def instructions(self) -> list[tuple[str, str]]:
        parser = DockerfileParser(path=str(ROOT / "Dockerfile"))
        return [(i["instruction"], i["value"]) for i in parser.structure]

    def values(self, wanted: str) -> list[str]:
        return [value for name, value in self.instructions() if name == wanted]

    def test_it_starts_one_worker_as_nobody_with_a_health_check(self) -> None:
        assert self.values("USER") == ["10001"]
        assert "/health" in self.values("HEALTHCHECK")[0]
        assert "--workers" not in self.values("ENTRYPOINT")[0]

    def test_the_linter_finds_nothing(self) -> None:
        hadolint = Path(sys.executable).parent / "hadolint"
        done = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, check=False)
        assert done.stdout.decode() == ""
        assert done.returncode == 0

    def test_what_it_copies_exists_and_is_not_ignored(self) -> None:
        sources = [value.split()[0] for value in self.values("COPY")]
        assert {s.split("/")[0] for s in sources} == {"serving", "${VERSION}"}
        kept = (ROOT / ".dockerignore").read_text().splitlines()
        assert "!serving" in kept
        assert "!" + self.values("ARG")[0].partition("=")[2].split("/")[0] in kept

    def test_all_that_the_copied_package_imports_is_pinned_in_a_version(self) -> None:
        """Nothing but a GPU version's requirements is installed in the image."""
        script = (
            "import sys, serving.entity\n"
            "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
        )
        ours = {"register", "deploying", "scoring", "model", "client", "score"}
        assert not ours & set(done.stdout.split())
        pinned = {line.partition("==")[0] for line in (ROOT / "requirements.txt").open()}
        imports = re.compile(r"^(?:from|import) (\w+)", re.MULTILINE)
        sources = [path.read_text() for path in (ROOT / "serving").glob("*.py")]
        needed = {name for source in sources for name in imports.findall(source)}
        third_party = needed - set(sys.stdlib_module_names) - {"serving"}
        assert third_party <= {name.replace("-", "_") for name in pinned}

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
        import model.engine  # noqa: F401 - declares its gauges
        from model.metrics import metrics_text

        query = self.of("ScaledObject")["spec"]["triggers"][0]["metadata"]["query"]
        metric = re.search(r"formline_\w+", query)
        assert metric is not None
        assert f"# TYPE {metric.group()} gauge" in metrics_text().decode()

    def test_a_short_lull_drops_no_pod(self) -> None:
        """KEDA's own cooldownPeriod counts only on the way to zero, where this never goes."""
        spec = self.of("ScaledObject")["spec"]
        assert spec["minReplicaCount"] > 0
        assert "cooldownPeriod" not in spec
        behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
        assert behavior["scaleDown"]["stabilizationWindowSeconds"] >= 600

    def test_calls_under_way_have_their_time_to_end(self) -> None:
        pod = self.of("Deployment")["spec"]["template"]["spec"]
        pause = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
        assert pod["terminationGracePeriodSeconds"] > Limits.execution_s + pause


TOKENS = {"FORMLINE_SERVING_TOKENS": "one two"}


class TestContainer:
    """The command line of the image, with the arguments and the variable of the pod."""

    def command(self, model: Path, port: int) -> list[str]:
        words = re.findall(r'"([^"]+)"', TestDockerfile().values("ENTRYPOINT")[0])
        changed = {"python": sys.executable, "/srv/version": str(model), "8080": str(port)}
        pod = TestKubernetes().of("Deployment")["spec"]["template"]["spec"]
        return [*(changed.get(word, word) for word in words), *pod["containers"][0]["args"]]

    def test_it_serves_shows_metrics_and_ends_after_its_calls(self, tmp_path: Path) -> None:
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        command = self.command(save_fake(tmp_path / "version"), port)
        with subprocess.Popen(command, cwd=ROOT, env={**os.environ, **TOKENS}) as process:
            wait_for(lambda: process.poll() is not None or is_up(f"{url}/health"), "it is up")
            assert "python_info" in requests.get(f"{url}/metrics", timeout=30).text
            assert ask(url, "x", "wrong").status_code == 401
            with ask(url, "slow " * 65, "two", stream=True) as reply:  # 13 s: more than most wait
                lines = reply.iter_lines()
                assert next(lines).startswith(b"data: ")
                process.terminate()
                assert list(lines)[-2:] == [b"data: [DONE]", b""]
            assert process.wait(60) in (0, -signal.SIGTERM)


def is_up(url: str) -> bool:
    try:
        return bool(requests.get(url, timeout=5).ok)
    except requests.ConnectionError:
        return False


def ask(url: str, prompt: str, token: str, *, stream: bool = False) -> requests.Response:
    body = {"dataframe_records": [{"prompt": prompt}], "stream": stream}
    headers = {"Authorization": f"Bearer {token}"}
    invocations = f"{url}/invocations"
    return requests.post(invocations, json=body, headers=headers, stream=stream, timeout=120)


def test_mlflows_own_image_has_the_settings_that_the_docs_name(tmp_path: Path) -> None:
    """What `mlflow models build-docker` would build, without building it."""
    model = save_fake(tmp_path / "version")
    command = ["mlflow", "models", "generate-dockerfile", "--env-manager", "local"]
    command += ["--model-uri", str(model), "--output-directory", str(tmp_path / "image")]
    subprocess.run([sys.executable, "-m", *command], check=True, capture_output=True)
    dockerfile = (tmp_path / "image" / "Dockerfile").read_text()
    assert "FROM python:3.11" in dockerfile
    documented = re.findall(r"-e (\w+)=", (ROOT / "docs" / "deploying.md").read_text())
    assert {"MLFLOW_MODELS_WORKERS", "DISABLE_NGINX"} <= set(documented)
    container = Path(mlflow.models.container.__file__).read_text()
    settings = vars(mlflow.environment_variables)
    for variable in set(documented) - set(TOKENS):
        assert variable in settings or f'"{variable}"' in container


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

    def test_its_methods_on_this_machine(
        self, modal_app: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The class that Modal would run, without Modal: loaded, served, and guarded."""
        monkeypatch.setattr(modal_app, "INSIDE", str(save_fake(tmp_path / "version")))
        served = ("__pyfunc_model_path__", "SERVING_MODEL_CONFIG")
        for variable in (*served, "MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT"):
            monkeypatch.setenv(variable, "")
            monkeypatch.delenv(variable)
        endpoint = modal_app.Endpoint._get_user_cls()()
        methods = vars(type(endpoint))
        methods["load"]._get_raw_f()(endpoint)
        assert os.environ["MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT"] == str(modal_app.EXECUTION_S)
        assert all(variable in os.environ for variable in served)
        monkeypatch.setenv("FORMLINE_SERVING_TOKENS", " ")
        with pytest.raises(ValueError, match="formline-tokens"):
            methods["web"]._get_raw_f()(endpoint)
        monkeypatch.setenv("FORMLINE_SERVING_TOKENS", "right")
        with TestClient(methods["web"]._get_raw_f()(endpoint)) as client:
            body = {"dataframe_records": [{"prompt": "hello"}]}
            assert client.post("/invocations", json=body).status_code == 401
            headers = {"Authorization": "Bearer right"}
            reply = client.post("/invocations", json=body, headers=headers)
        assert reply.json()["predictions"][0]["output"] == "hello"

    def test_its_folders_are_the_ones_of_the_dockerfile(self, modal_app: ModuleType) -> None:
        dockerfile = (ROOT / "Dockerfile").read_text()
        assert f"ARG VERSION={modal_app.VERSION.relative_to(ROOT)}" in dockerfile
        assert f"COPY ${{VERSION}} {modal_app.INSIDE}" in dockerfile
        assert (modal_app.PROJECT / "serving" / "scoring_app.py").is_file()
