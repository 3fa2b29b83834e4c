"""Who writes the guidance of a label: an embedded template, or a chat model."""
