"""Figures of a report: curves, bars, and the processes that draw them."""
