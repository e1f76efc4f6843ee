"""What a step costs, beside the loop that one would write by hand and beside BlackJAX."""
