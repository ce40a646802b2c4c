"""All that speaks HTTP: the answers, the application behind them, the bounds on clients, the server."""
