# Plumbline on a CPU:   docker build -t plumbline .
#   docker run --rm -v "$PWD:/work" plumbline check trl-output/
#   docker run --rm -v "$PWD:/work" plumbline run mine.yaml
# Other extras: --build-arg EXTRAS=train,serve. For a GPU: --build-arg TORCH_INDEX= (the default index has the build for
# CUDA), and docker run --gpus all.
# A test checks what this file copies; the image itself has not been built yet.
FROM python:3.11-slim

ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG EXTRAS=train
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 OMP_WAIT_POLICY=passive

WORKDIR /opt/plumbline
# torch first and alone: its CPU build satisfies everything that depends on it, which would otherwise bring CUDA.
COPY constraints.txt ./
RUN pip install ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} "$(grep '^torch==' constraints.txt)"
COPY pyproject.toml README.md LICENSE ./
COPY src src
COPY environments environments
RUN pip install -c constraints.txt ".[${EXTRAS}]" ./environments/*

RUN useradd --create-home --uid 1000 plumbline && install -d -o plumbline /work
USER plumbline
WORKDIR /work
ENTRYPOINT ["plumbline"]
CMD ["--help"]
