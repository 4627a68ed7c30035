"""Readers of file formats, one file each, and what is made of them."""
