"""Collective communication for Python programs that are not one rigid job."""
