# The service alone: its database is named by DATABASE_URL, and the small local model is not in it.
FROM python:3.12-slim

ENV PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore \
    BRANCHLINE_PORT=8000

RUN useradd --system --user-group --no-create-home branchline
WORKDIR /opt/branchline

# Dependencies change less often than the code: a layer of their own.
COPY requirements/service.txt requirements/
RUN pip install --only-binary :all: --require-hashes -r requirements/service.txt

COPY pyproject.toml README.md alembic.ini ./
COPY migrations migrations
COPY app app
RUN pip install --no-deps --no-index --no-build-isolation --editable . && python -m compileall -q app

USER branchline
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen(f'http://127.0.0.1:{os.environ[\"BRANCHLINE_PORT\"]}/healthz', timeout=4)"]
ENTRYPOINT ["branchline"]
CMD ["serve", "--host", "0.0.0.0"]
