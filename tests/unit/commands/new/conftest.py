"""The servers of the tests of remote sources."""

from tests.unit.stages.ingest.conftest import s3, s3_endpoint, server

__all__ = ["s3", "s3_endpoint", "server"]
