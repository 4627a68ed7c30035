"""Data types, registries, configuration files and other definitions that every package needs."""
