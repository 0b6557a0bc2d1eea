"""Estimates and intervals, computed from released numbers only."""
