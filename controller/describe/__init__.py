"""Seeing what a group or a pool is and does."""
