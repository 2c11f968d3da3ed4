"""NADA's layers: functions, possible parallelism, and costs."""
