"""The benchmark of failure localisation and credit (``pivot benchmark``)."""
