"""Commands that create and revoke the API keys of servers, which read them."""
