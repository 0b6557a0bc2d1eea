"""Mechanisms as their papers print them: what they claim is not proven here."""
