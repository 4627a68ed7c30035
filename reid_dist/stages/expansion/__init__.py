"""Features replaced before an evaluation: averages with neighbours, and normalisation by camera."""
