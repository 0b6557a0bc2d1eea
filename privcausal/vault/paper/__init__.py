"""Mechanisms as printed in their papers; their privacy claims are not proven here."""
