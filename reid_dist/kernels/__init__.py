"""Compiled inner loops over arrays.  `settings` defines the compiler's settings."""
