"""Fused passes over the rows on a GPU."""
