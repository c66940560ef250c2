"""A real Prometheus, which scrapes servers of this machine. Needs Debian's `prometheus`."""

import json
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import yaml

from testbed.missing import require_program

_PATIENCE_S = 30.0


class PrometheusProcess:
    """Prometheus with the scrape job of a configuration, on other targets; a context manager.

    Args:
        config: the configuration, whose rule files lie beside it.
        targets: `host:port` of the servers.
        port: where it listens.
        folder: for its data.
    """

    def __init__(self, config: Path, targets: Sequence[str], port: int, folder: Path) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self._folder = folder
        self._config = _retargeted(config, targets, folder)
        self._listen = f"127.0.0.1:{port}"

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the samples of a PromQL expression, now."""
        return self._get("query", query=expression)["result"]

    def rules(self) -> list[dict[str, Any]]:
        """Return every rule, with its health and state."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def _get(self, what: str, **parameters: str) -> Any:
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self._url}/api/v1/{what}?{query}", timeout=5) as response:
            return json.load(response)["data"]

    def __enter__(self) -> Self:
        argv = [
            require_program("prometheus"), f"--config.file={self._config}",
            f"--web.listen-address={self._listen}",
            f"--storage.tsdb.path={self._folder / 'data'}", "--log.level=warn",
        ]  # fmt: skip
        self._process = subprocess.Popen(argv)
        deadline = time.monotonic() + _PATIENCE_S
        while not self._is_ready():
            assert time.monotonic() < deadline, "Prometheus does not start"
            time.sleep(0.05)
        return self

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=1) as response:
                return response.status == 200
        except OSError:
            return False

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def _retargeted(path: Path, targets: Sequence[str], folder: Path) -> Path:
    """Write the configuration with other targets and without a key, and return the file."""
    config = yaml.safe_load(path.read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(path.parent / name) for name in config["rule_files"]]
    (job,) = config["scrape_configs"]
    del job["authorization"], job["dns_sd_configs"]
    job["static_configs"] = [{"targets": list(targets)}]
    written = folder / "prometheus.yml"
    written.write_text(yaml.safe_dump(config))
    return written
