"""The contestants: this library, loops written by hand, BlackJAX."""
