# The image of a parameter server, without TensorFlow. To build it, in the top folder of the repository:
#
#   docker build --file deploy/images/ps.Dockerfile --tag elasticdl-ps .
#
# BASE is any image that has Python 3.11 to 3.13 with its venv module, and CA certificates.
ARG BASE=python:3.12-slim

FROM ${BASE} AS requirements
WORKDIR /build
COPY pyproject.toml deploy/images/dependencies.py ./
# The same time of change lets an unchanged file find its cached layer.
RUN python3 dependencies.py ps > requirements.txt && touch --date=@0 requirements.txt

# A layer that only other dependencies, or new versions of them, change.
FROM ${BASE} AS dependencies
WORKDIR /build
COPY constraints.txt ./
COPY --from=requirements /build/requirements.txt ./
RUN python3 -m venv /opt/elasticdl \
    && /opt/elasticdl/bin/pip install --no-cache-dir --constraint constraints.txt --requirement requirements.txt \
    && /opt/elasticdl/bin/pip uninstall --quiet --yes setuptools pip \
    && echo /opt/elasticdl/code > "$(echo /opt/elasticdl/lib/python3.*/site-packages)/elasticdl.pth"

# The kernels, compiled from their own files only, so that other changes do not compile them again.
FROM dependencies AS kernels
ENV NUMBA_CACHE_DIR=/opt/elasticdl/kernels
COPY deploy/images/start /opt/elasticdl/start
COPY shared/elasticdl/shared/model/kernels /opt/elasticdl/code/elasticdl/shared/model/kernels
COPY services/ps/elasticdl/ps/engine/kernels /opt/elasticdl/code/elasticdl/ps/engine/kernels
COPY deploy/images/compile_kernels.py ./
RUN mkdir "$NUMBA_CACHE_DIR" && /opt/elasticdl/start compile_kernels.py /opt/elasticdl/code

# This package: a small layer.
FROM ${BASE} AS code
WORKDIR /build
COPY constraints.txt ./
RUN python3 -m venv /tools && /tools/bin/pip install --no-cache-dir --constraint constraints.txt hatchling
COPY pyproject.toml LICENSE README.md ./
COPY model_zoo model_zoo
COPY shared shared
COPY client client
COPY services services
RUN /tools/bin/pip install --no-cache-dir --no-deps --no-build-isolation --target /opt/elasticdl/code .

FROM ${BASE}
COPY --from=dependencies /opt/elasticdl /opt/elasticdl
COPY --from=kernels /opt/elasticdl/kernels /opt/elasticdl/kernels
ENV NUMBA_CACHE_DIR=/tmp/elasticdl-kernels
COPY --from=code /opt/elasticdl/code /opt/elasticdl/code
COPY deploy/images/start /opt/elasticdl/start
ENV PATH=/opt/elasticdl/bin:$PATH
USER 65532:65532
ENTRYPOINT ["/opt/elasticdl/start"]
CMD ["-m", "elasticdl.ps.main"]
