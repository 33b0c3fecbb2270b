"""Judgements: pure, explainable, each with evidence."""
