"""The version, importable by every floor."""

from __future__ import annotations

VERSION = "0.1.0"
