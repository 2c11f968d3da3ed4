"""Diagnosis of a run that failed or was stopped: how far each node got, and what stopped it."""
