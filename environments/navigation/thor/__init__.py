"""The AI2-THOR backend: a Unity simulator under guard."""
