"""Charts as values, their drawings in pages, and figures of them for papers."""
