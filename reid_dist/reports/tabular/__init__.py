"""Tables as values, and the five forms in which they are written: console text, HTML, Markdown, LaTeX and CSV."""
