"""Helpers that programs import."""
