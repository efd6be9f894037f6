"""Experiment trackers: what a run sends to them while it learns, and each of them behind one contract.

No tracker's own package is imported before a run begins that was asked to send to it.
"""
