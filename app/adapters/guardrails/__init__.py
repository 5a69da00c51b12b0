"""Guardrails that are no part of the core: functions of this installation."""
