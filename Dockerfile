# gpusim and nothing else:
#   docker build -t gpusim .
#   docker run --rm gpusim gemm --arch t4 -m 4096 -n 4096 -k 4096
# With the files of a folder, as the user who owns them:
#   docker run --rm -u "$(id -u):$(id -g)" -v "$PWD:/data" gpusim run experiment.yaml

FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml hatch_build.py README.md CITATION.cff LICENSE ./
COPY gpusim gpusim
COPY arch_specs arch_specs
COPY experiments experiments
COPY schemas schemas
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim
COPY constraints.txt /tmp/constraints.txt
COPY --from=build /wheels /tmp/wheels
RUN python -m pip install --no-cache-dir --constraint /tmp/constraints.txt /tmp/wheels/*.whl
# Any user may write there: docker run -u names one that has no home.
ENV XDG_CACHE_HOME=/tmp/cache MPLCONFIGDIR=/tmp/matplotlib
RUN useradd --no-create-home gpusim && mkdir /data && chown gpusim /data
USER gpusim
WORKDIR /data
ENTRYPOINT ["gpusim"]
