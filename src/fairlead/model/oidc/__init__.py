"""Sign-in with OpenID Connect: the settings of providers, the checks of tokens, and what claims grant."""
