"""What may be said: estimates and intervals computed from released numbers only."""
