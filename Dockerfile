# The server (default target) and the agents.
#
#     docker build --tag voiceagent-tts .
#     docker run --rm -p 127.0.0.1:8765:8765 -e VOICEAGENT_TTS_API_KEYS=... voiceagent-tts
#
# With Qwen3-TTS for a GPU, as Compose builds it:
# --build-arg EXTRAS=server,espeak,japanese,hibari,kokoro,qwen3
# --build-arg PACKAGES="gcc libc6-dev" (Triton compiles what loads its kernels when it starts).
# Pocket TTS, whose torch is larger than all the rest, needs an image of its own: EXTRAS=...,pocket

FROM python:3.11-slim AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /source
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY voiceagent_tts voiceagent_tts
COPY livekit livekit

FROM build AS build-server
ARG EXTRAS=server,espeak,japanese,hibari,kokoro
RUN pip wheel --wheel-dir /wheels ".[${EXTRAS}]" "c2pa-python>=0.30"
RUN python -m venv --without-pip /opt/voiceagent \
    && pip --python /opt/voiceagent/bin/python install --no-index --find-links /wheels \
    "voiceagent-tts[${EXTRAS}]" c2pa-python

FROM build AS build-agent
RUN pip wheel --wheel-dir /wheels ".[agents]"
RUN python -m venv --without-pip /opt/voiceagent \
    && pip --python /opt/voiceagent/bin/python install --no-index --find-links /wheels \
    "voiceagent-tts[agents]"

FROM python:3.11-slim AS runtime
ARG PACKAGES=""
ENV PATH=/opt/voiceagent/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
RUN if [ -n "${PACKAGES}" ]; then apt-get update \
    && apt-get install --yes --no-install-recommends ${PACKAGES} && rm -rf /var/lib/apt/lists/*; fi
# A volume that is mounted at /data belongs to whom the folder belonged to.
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin voiceagent \
    && install --directory --owner 10001 --group 10001 /data
USER 10001:10001
WORKDIR /app

FROM runtime AS agent
# Pipecat and matplotlib keep caches at home.
ENV HOME=/tmp MPLCONFIGDIR=/tmp
COPY --from=build-agent /opt/voiceagent /opt/voiceagent
COPY agents agents
CMD ["python", "-m", "agents.pipecat_demo"]

FROM runtime AS server
# An address that others can reach: the server refuses to start on it without API keys.
ENV VOICEAGENT_TTS_HOST=0.0.0.0
# What outlives a container: voices, the watermark's keys, models, and compiled kernels.
ENV VOICEAGENT_TTS_VOICES_FOLDER=/data/voices VOICEAGENT_TTS_WATERMARK_KEY_FILE=/data/watermark.keys VOICEAGENT_TTS_JOBS_STORAGE=/data/jobs HF_HOME=/data/huggingface TRITON_CACHE_DIR=/data/triton
COPY --from=build-server /opt/voiceagent /opt/voiceagent
COPY LICENSE NOTICE ./
EXPOSE 8765
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8765/health/ready', timeout=2)"]
# The exec form: SIGTERM reaches the server, which then drains.
CMD ["voiceagent-tts", "serve"]
