"""Layouts for a model on a cluster: which are legal, which is the usual one."""
