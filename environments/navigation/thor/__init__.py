"""AI2-THOR backend: a Unity simulator in a supervised child process."""
