"""The notebooks: text, sliders and pictures."""
