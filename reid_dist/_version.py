"""The version, in a file that both the build and the package read."""

__version__ = "0.2.0"
