"""The one oracle: memory, compute, and what they need."""
