"""The ports of programs that must be told one."""

import sys
from pathlib import Path

import pytest

from testbed.ports import free_ports


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_no_server_of_another_test_gets_a_free_port() -> None:
    """Linux gives whoever asks for any port one of a range, and no free port is in it."""
    first, _ = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    ports = free_ports(50)
    assert len(set(ports)) == 50 and max(ports) < first
