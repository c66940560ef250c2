"""Checks of models and devices, for the commands `verify` and `doctor --gpu`."""
