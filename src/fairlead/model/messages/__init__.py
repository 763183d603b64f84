"""Messages that built-in jobs send: HTTP requests, webhooks and email."""
