"""Better estimates from draws that are already there."""

__all__: list[str] = []
