"""The checks of ID tokens and logout tokens: signature, issuer, audience and times. joserfc reads and verifies them.

OpenID Connect Core 3.1.3.7, and Back-Channel Logout 2.6.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from joserfc import jws, jwt
from joserfc.errors import JoseError, SecurityWarning
from joserfc.jwk import ECKey, GuestProtocol, Key, KeySet, OKPKey, RSAKey, import_key

from fairlead.errors import SignInRefused
from fairlead.model.oidc.settings import OidcProvider
from fairlead.model.payload import find_storage_flaw

# Only signatures that need a private key: with a shared secret, the public key could pass for it.
ALGORITHMS: Mapping[str, type[Key]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), RSAKey),
    **dict.fromkeys(("ES256", "ES384", "ES512"), ECKey),
    **dict.fromkeys(("EdDSA", "Ed25519"), OKPKey),
}
LEEWAY_SECONDS = 60
# A token is issued when the provider gets the code, or ends a session.
LONGEST_AGE_SECONDS = 600
LONGEST_TOKEN = 65_536
SMALLEST_RSA_BITS = 2048
LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"
# Providers may add their own header parameters; those that are critical are refused.
_REGISTRY = jws.JWSRegistry(algorithms=list(ALGORITHMS), strict_check_header=False)


class KeyUnknown(Exception):
    """The token names a key that the known keys of the provider do not have: they may have been rotated."""


class InvalidKeys(Exception):
    """A document is not a JWKS."""


def import_keys(document: Any) -> KeySet:
    """The keys of a JWKS that verify signatures; keys of other kinds and uses are left out. InvalidKeys if it is none."""
    if not isinstance(document, dict) or not isinstance(document.get("keys"), list):
        raise InvalidKeys
    found = [key for one in document["keys"] if (key := _import_key(one)) is not None]
    return KeySet(found)


def _import_key(said: Any) -> Key | None:
    if not isinstance(said, dict) or said.get("kty") not in ("RSA", "EC", "OKP"):
        return None
    if said.get("use", "sig") != "sig" or "d" in said:
        return None
    if said.get("alg") is not None and said["alg"] not in ALGORITHMS:
        return None
    try:
        key = import_key(said)
        if isinstance(key, RSAKey) and key.public_key.key_size < SMALLEST_RSA_BITS:
            return None
    except (JoseError, ValueError, TypeError, KeyError):  # a kind that we do not know
        return None
    return key


def check_id_token(
    provider: OidcProvider, text: str, keys: KeySet, *, nonce: str, now: float
) -> dict[str, Any]:
    """The claims of a valid ID token; SignInRefused says what is wrong, KeyUnknown asks for newer keys."""
    claims = _verify(text, keys, ("JWT",))
    _check_issuer_and_audience(provider, claims)
    _check_times(claims, now)
    if "events" in claims:
        raise _token_error("it is not an ID token")
    if claims.get("nonce") != nonce:
        raise _token_error("its nonce is not that of this sign-in")
    _require_subject(claims.get("sub"))
    return claims


def check_logout_token(provider: OidcProvider, text: str, keys: KeySet, *, now: float) -> dict[str, Any]:
    """The claims of a valid logout token: it names a session (sid), a person (sub), or both."""
    claims = _verify(text, keys, ("JWT", "LOGOUT+JWT"))
    _check_issuer_and_audience(provider, claims)
    _check_times(claims, now)
    events = claims.get("events")
    if not isinstance(events, Mapping) or not isinstance(events.get(LOGOUT_EVENT), Mapping):
        raise _token_error("it is not a logout token")
    if "nonce" in claims:
        raise _token_error("a logout token has no nonce")
    named = [name for name in ("sub", "sid") if name in claims]
    for name in ("jti", *(named or ["sub"])):
        _require_text(name, claims.get(name))
    return claims


def _verify(text: str, keys: KeySet, types: Sequence[str]) -> dict[str, Any]:
    if len(text) > LONGEST_TOKEN or not text.isascii():
        raise _token_error("it is too long, or not a token")

    def choose_key(token: GuestProtocol) -> Key:
        return _choose_key(keys, token.headers())

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SecurityWarning)  # of EdDSA, whose new name is Ed25519
            token = jwt.decode(text, choose_key, registry=_REGISTRY)
    except (JoseError, ValueError, TypeError, RecursionError) as error:
        raise _token_error("its signature is not valid") from error
    typ = token.header.get("typ", "JWT")
    if not isinstance(typ, str) or typ.upper().removeprefix("APPLICATION/") not in types:
        raise _token_error("it is a token of another type")
    return token.claims


def _choose_key(keys: KeySet, header: Mapping[str, Any]) -> Key:
    """The provider's key that a header names. Keys in the token itself (jwk, jku, x5u) mean nothing."""
    algorithm, kid = header.get("alg"), header.get("kid")
    kind = ALGORITHMS.get(algorithm) if isinstance(algorithm, str) else None
    if kind is None:
        raise ValueError("the algorithm is not allowed")
    usable = [one for one in keys if isinstance(one, kind) and one.get("alg") in (None, algorithm)]
    named = [one for one in usable if one.kid == kid]
    if kid is None and len(usable) == 1:  # with several, the token must say which
        return usable[0]
    if not named:
        raise KeyUnknown
    return named[0]


def _check_issuer_and_audience(provider: OidcProvider, claims: Mapping[str, Any]) -> None:
    if claims.get("iss") != provider.issuer:
        raise _token_error("it comes from another issuer")
    audience = claims.get("aud")
    audiences = [audience] if isinstance(audience, str) else audience
    if not isinstance(audiences, list) or provider.client_id not in audiences:
        raise _token_error("it is for another client")
    if len(audiences) > 1 and "azp" not in claims:
        raise _token_error("it is for several clients, and does not say for which it was issued")
    if claims.get("azp", provider.client_id) != provider.client_id:
        raise _token_error("it was issued for another client")


def _check_times(claims: Mapping[str, Any], now: float) -> None:
    issued, expires = _read_time(claims, "iat"), _read_time(claims, "exp")
    if expires <= now - LEEWAY_SECONDS:
        raise _token_error("it has expired")
    if "nbf" in claims and _read_time(claims, "nbf") > now + LEEWAY_SECONDS:
        raise _token_error("it is not valid yet: compare the clocks of the two servers")
    if issued > now + LEEWAY_SECONDS:
        raise _token_error("it was issued in the future: compare the clocks of the two servers")
    if issued < now - LONGEST_AGE_SECONDS - LEEWAY_SECONDS:
        raise _token_error("it was issued too long ago")


def _read_time(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _token_error(f"it has no valid {name}")
    try:
        moment = float(value)
    except OverflowError:  # an integer may have any number of digits
        moment = math.inf
    if not math.isfinite(moment):
        raise _token_error(f"it has no valid {name}")
    return moment


def _require_subject(value: object) -> None:
    _require_text("sub", value)


def _require_text(name: str, value: object) -> None:
    if not isinstance(value, str) or not 0 < len(value) <= 255 or find_storage_flaw(value):
        raise _token_error(f"it has no valid {name}")


def _token_error(why: str) -> SignInRefused:
    return SignInRefused(f"The provider sent a token that cannot be accepted: {why}. Sign in again.")
