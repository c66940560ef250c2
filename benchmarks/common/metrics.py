"""Read what a server says of itself."""

from collections import defaultdict


def read_metrics(url: str, key: str = "") -> dict[str, float]:
    """Return every metric of the server at `url`, an `http://` address, summed over its labels."""
    # Imported here: a GPU machine without wheels has no server, and lacks it.
    import httpx

    headers = {"Authorization": f"Bearer {key}"} if key else {}
    metrics = defaultdict[str, float](float)
    for line in httpx.get(f"{url}/metrics", headers=headers, timeout=60).text.splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            metrics[name.partition("{")[0]] += float(value)
    return dict(metrics)
