"""Rendering: plain tables in; text, LaTeX, HTML and plots out. This code never receives rows."""
