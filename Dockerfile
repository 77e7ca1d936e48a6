# A server on CPUs. Build, and serve a run from a directory of runs:
#   docker build --tag headwise .
#   docker run --publish 127.0.0.1:8000:8000 --volume "$PWD/runs:/runs:ro" headwise /runs/ende
FROM python:3.12-slim

# An index with torch's wheels for CPUs, if you have one at hand: they are smaller by gigabytes.
ARG PIP_EXTRA_INDEX_URL=

WORKDIR /app
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir '.[serve,ctranslate2]' && useradd --uid 10001 headwise

USER headwise
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=3)"]
# Every network of the container, which is not yet every network of the machine.
ENTRYPOINT ["headwise", "serve", "--host", "0.0.0.0", "--port", "8000"]
CMD ["/runs/model"]
