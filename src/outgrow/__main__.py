"""`python -m outgrow`."""

from outgrow.cli.main import run

run()
