"""What someone wants to do: a model, a job on it, and what surrounds it."""
