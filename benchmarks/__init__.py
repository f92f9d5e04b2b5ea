"""Measurements that run against a live server; nothing here is part of the installed package."""
