"""Engines that generate replies while a model is trained (group ``pivot.generators``)."""
