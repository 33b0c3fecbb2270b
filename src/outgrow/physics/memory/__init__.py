"""The one room for every memory term: states, activations, loss, cache, engines' budgets, overheads."""
