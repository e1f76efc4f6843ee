"""Interactive pictures: notebooks in which sliders run real chains."""
