# The image of a worker, with TensorFlow. To build it, in the top folder of the repository:
#
#   docker build --file deploy/images/worker.Dockerfile --tag elasticdl-worker .
#
# BASE is any image that has Python 3.11 to 3.13 with its venv module, and CA certificates.
ARG BASE=python:3.12-slim

FROM ${BASE} AS build
WORKDIR /build
# The dependencies first, so that a change of the sources does not install them again.
COPY constraints.txt pyproject.toml deploy/images/dependencies.py ./
RUN python3 -m venv /opt/elasticdl \
    && python3 dependencies.py worker > requirements.txt \
    && /opt/elasticdl/bin/pip install --no-cache-dir --constraint constraints.txt --requirement requirements.txt
COPY LICENSE README.md ./
COPY model_zoo model_zoo
COPY shared shared
COPY client client
COPY services services
RUN /opt/elasticdl/bin/pip install --no-cache-dir --no-deps . \
    && /opt/elasticdl/bin/pip uninstall --yes setuptools pip

FROM ${BASE}
COPY --from=build /opt/elasticdl /opt/elasticdl
# The compiled loops are cached here; a pod with a read-only root file system needs a volume at /tmp.
ENV NUMBA_CACHE_DIR=/tmp/numba
USER 65532:65532
ENTRYPOINT ["/opt/elasticdl/bin/python", "-m", "elasticdl.worker.main"]
