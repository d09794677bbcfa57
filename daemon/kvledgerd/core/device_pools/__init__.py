"""Pools of device pages that engines set aside."""
