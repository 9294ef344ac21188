"""Treadle inside other libraries."""
