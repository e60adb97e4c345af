"""Servers that several tests of remote sources use."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from crawl2llm.stages.ingest import remote
from tests.unit.stages.ingest.servers import Server, http_server


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """An HTTP server; pauses between attempts are short."""
    monkeypatch.setattr(remote, "FIRST", 0.01)
    with http_server() as made:
        yield made


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The address of an S3 server (moto)."""
    moto = pytest.importorskip("moto.server", reason="no moto: envs/lock-dev.txt is not installed")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    made = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    made.start()
    yield "http://{}:{}".format(*made.get_host_and_port())
    made.stop()


@pytest.fixture
def s3(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same, with credentials in the environment and none on this machine's disk."""
    values = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
    for name, value in {**values, "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}.items():
        monkeypatch.setenv(name, value)
    return s3_endpoint
