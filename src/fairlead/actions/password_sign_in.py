"""How a sign-in goes on after the right password: at once, with a code, or on a second page that asks for the code."""

from typing import NamedTuple, Protocol

from fairlead.actions import second_factor
from fairlead.actions.second_factor import CodeCheck
from fairlead.db.tx import Tx
from fairlead.model.access import Principal
from fairlead.model.second_factor import SignInProof
from fairlead.model.secrets.generated import generate_secret, hash_secret
from fairlead.store import audit, pending_sign_ins
from fairlead.store.access import Credentials

# How long the second page waits for the code.
PENDING_SECONDS = 300


class StartSession(Protocol):
    """Starts a session: the principal and the cookie's secret, or None if the user was changed meanwhile."""

    async def __call__(
        self, tx: Tx, user: Credentials, *, proof: SignInProof
    ) -> tuple[Principal, str] | None: ...


class SignInOutcome(NamedTuple):
    """What became of a sign-in with the right password."""

    check: CodeCheck
    # the session, if it has begun
    principal: Principal | None = None
    secret: str | None = None
    # the secret of the pending sign-in, if a second page is to ask for the code
    pending: str | None = None


async def enter(
    tx: Tx, user: Credentials, *, code: str | None, start: StartSession, waits: bool = False
) -> SignInOutcome | None:
    """Start a session for a user whose password is right, if the code is, too. None if the user was changed meanwhile.

    With `waits`, a missing code begins a pending sign-in. The caller commits in any case: a wrong code is counted.
    """
    check = await second_factor.check_sign_in(tx, user.id, code)
    if check is CodeCheck.MISSING and waits:
        secret = generate_secret(user.tenant_id)
        if not await pending_sign_ins.begin(tx, user, secret_hash=secret.hash, seconds=PENDING_SECONDS):
            return None
        return SignInOutcome(check, pending=secret.text)
    if check is CodeCheck.WRONG:
        await _record_wrong_code(tx, user)
    if check in (CodeCheck.MISSING, CodeCheck.WRONG):
        return SignInOutcome(check)
    proof = SignInProof.CODE if check is CodeCheck.PASSED else SignInProof.PASSWORD
    begun = await start(tx, user, proof=proof)
    return None if begun is None else SignInOutcome(check, *begun)


async def find_pending(tx: Tx, secret: str) -> Credentials | None:
    """The user of a pending sign-in; None if it has ended."""
    return await pending_sign_ins.find(tx, hash_secret(secret))


async def enter_pending(tx: Tx, secret: str, *, code: str, start: StartSession) -> SignInOutcome | None:
    """Finish a pending sign-in, once. None if it has ended: also by its last try, or by another request with its cookie.

    The caller commits in any case: a wrong code is counted.
    """
    hashed = hash_secret(secret)
    user = await pending_sign_ins.lock(tx, hashed)
    if user is None:
        return None
    outcome = await enter(tx, user, code=code, start=start)
    if outcome is None or outcome.secret is not None:
        await pending_sign_ins.end(tx, hashed)
    elif outcome.check is CodeCheck.WRONG:
        await pending_sign_ins.count_try(tx, hashed)
    return outcome


async def _record_wrong_code(tx: Tx, user: Credentials) -> None:
    await audit.write(
        tx,
        actor="anonymous",
        action="login_failed",
        resource_type="user",
        resource_id=user.id,
        tenant_id=user.tenant_id,
        details={"email": user.email, "second_factor": "wrong_code"},
    )
