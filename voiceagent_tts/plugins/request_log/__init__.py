"""Writes a line for each context to a file, if the setting `request_log` names one."""
