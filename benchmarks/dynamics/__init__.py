"""The dynamics side by side: order, law and cost of a step; gradients until a bias is small."""
