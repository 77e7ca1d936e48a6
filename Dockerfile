# A CPU server. Build the image, and serve a run from a directory of runs:
#   docker build --tag headwise .
#   docker run --publish 127.0.0.1:8000:8000 --volume "$PWD/runs:/runs:ro" headwise /runs/ende

# A tag can move. For reproducible builds, pass a digest: --build-arg BASE=python@sha256:...
ARG BASE=python:3.12-slim
FROM ${BASE}

# An index with torch's CPU wheels, which are gigabytes smaller: --build-arg TORCH_INDEX=...
# Only torch is installed from it, so that it cannot supply any other package.
ARG TORCH_INDEX=

# The versions that the tests ran with, including build dependencies.
ENV PIP_CONSTRAINT=/app/constraints.txt PIP_BUILD_CONSTRAINT=/app/constraints.txt

WORKDIR /app
COPY constraints.txt ./
RUN if [ -n "$TORCH_INDEX" ]; then \
      PIP_INDEX_URL="$TORCH_INDEX" pip install --no-cache-dir --no-deps "$(grep '^torch==' constraints.txt)"; \
    fi
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir '.[serve,ctranslate2]' && useradd --uid 10001 headwise

USER headwise
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=3)"]
# All interfaces of the container; `docker run --publish` decides which of the host's.
ENTRYPOINT ["headwise", "serve", "--host", "0.0.0.0", "--port", "8000"]
CMD ["/runs/model"]
