"""HOW IT LOOKS: plain tables in; text, LaTeX, HTML and pictures out. No rows come here."""
