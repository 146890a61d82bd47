# One registered version in an image: weights baked in, one worker, a health check.
#
#   mlflow artifacts download -u models:/NAME/VERSION -d build/version
#   docker build --build-arg VERSION=build/version -t grader:3 .
#   docker run --init --gpus all --shm-size 4g -p 8080:8080 -e FORMLINE_SERVING_TOKENS=... grader:3
#
# Tried: linted with hadolint; its command line. Not tried: building it, running it on a GPU.
# /invocations, /v1, /metrics and /health are on port 8080. The CUDA libraries come with torch's
# wheel; the host brings the NVIDIA driver and container toolkit.
FROM python:3.11-slim-bookworm

# Triton compiles its kernels with the system's C compiler when the engine starts.
# Security fixes matter more than the same compiler in every build.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*

ENV PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1 \
    HF_HUB_OFFLINE=1 \
    VLLM_NO_USAGE_STATS=1

# The folder of one downloaded version. Its requirements change less often than its weights.
ARG VERSION=build/version
COPY ${VERSION}/requirements.txt /srv/requirements.txt
RUN python -m pip install --requirement /srv/requirements.txt

COPY serving /srv/serving
COPY ${VERSION} /srv/version

RUN useradd --create-home --uid 10001 formline
USER 10001
WORKDIR /srv
EXPOSE 8080

# Loading takes minutes; after that, a 503 means that only a restart helps.
HEALTHCHECK --start-period=30m --interval=15s --timeout=10s --retries=4 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/health', timeout=8)"]

ENTRYPOINT ["python", "-m", "serving.entity", "--model-uri", "/srv/version", "--host", "0.0.0.0", "--port", "8080"]
