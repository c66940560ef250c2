"""Faults of a file system, each within a block."""

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def full_disk(largest_bytes: int = 100) -> Iterator[None]:
    """Let no file of this process, and of those it starts, grow beyond a size."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@contextlib.contextmanager
def no_files() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@contextlib.contextmanager
def damaged(path: Path) -> Iterator[None]:
    content = path.read_bytes()
    path.write_bytes(content[:-9])
    try:
        yield
    finally:
        path.write_bytes(content)


@contextlib.contextmanager
def no_folder(path: Path) -> Iterator[None]:
    away = path.parent.rename(path.parent.with_suffix(".away"))
    path.parent.touch()
    try:
        yield
    finally:
        path.parent.unlink()
        away.rename(path.parent)
