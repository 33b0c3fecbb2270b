"""The command line: thin, lazy, no arithmetic."""
