# Two images from one file: `gpu` holds the proxy and the engine, `proxy` the proxy alone.
#
#   docker build --target gpu   -t structured-server:gpu .
#   docker build --target proxy -t structured-server:proxy .
#
# docs/image.md says what to set. Pin both bases by digest for what goes into production.
ARG VLLM_IMAGE=docker.io/vllm/vllm-openai:v0.32.0-cu129
ARG PYTHON_IMAGE=docker.io/library/python:3.12-slim-bookworm

# The proxy's own environment: vLLM pins other versions of the same libraries.
FROM ${VLLM_IMAGE} AS gpu
USER 0
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends tini \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/build
COPY requirements.lock ./
RUN python3 -m venv --without-pip /opt/proxy \
    && python3 -m pip --python /opt/proxy/bin/python install --no-cache-dir --require-hashes -r requirements.lock
COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY examples examples
COPY structured_server structured_server
RUN python3 -m pip --python /opt/proxy/bin/python install --no-cache-dir --no-deps . \
    && rm -rf /opt/build
COPY deploy/image/entrypoint.sh deploy/image/check-gpu.sh /opt/structured-server/
RUN useradd --uid 10001 --create-home --home-dir /home/app app \
    && mkdir -p /cache \
    && chown app:app /cache
ENV HOME=/home/app \
    HF_HOME=/cache/huggingface \
    HF_XET_HIGH_PERFORMANCE=1 \
    VLLM_CACHE_ROOT=/cache/vllm \
    VLLM_CONFIG_ROOT=/cache/vllm-config \
    TRITON_CACHE_DIR=/cache/triton \
    TORCHINDUCTOR_CACHE_DIR=/cache/inductor \
    XDG_CACHE_HOME=/cache \
    PYTHONUNBUFFERED=1
WORKDIR /home/app
USER 10001
EXPOSE 8080
# In place of the base image's, which starts vLLM alone. tini passes TERM on to the script only.
ENTRYPOINT ["tini", "--", "/opt/structured-server/entrypoint.sh"]
CMD []

FROM ${PYTHON_IMAGE} AS proxy
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends tini \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/build
COPY requirements.lock ./
RUN python3 -m venv --without-pip /opt/proxy \
    && python3 -m pip --python /opt/proxy/bin/python install --no-cache-dir --require-hashes -r requirements.lock
COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY examples examples
COPY structured_server structured_server
RUN python3 -m pip --python /opt/proxy/bin/python install --no-cache-dir --no-deps . \
    && rm -rf /opt/build
RUN useradd --uid 10001 --create-home --home-dir /home/app app
ENV HOME=/home/app \
    STRUCTURED_SERVER_HOST=0.0.0.0 \
    PYTHONUNBUFFERED=1
WORKDIR /home/app
USER 10001
EXPOSE 8080
ENTRYPOINT ["tini", "--", "/opt/proxy/bin/structured-server"]
CMD ["serve"]
