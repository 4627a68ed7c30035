"""Gates: what of a night is better, the same or worse than before, and whether that is more than noise."""
