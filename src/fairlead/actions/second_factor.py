"""The second factor of users who sign in with a password: set it up, check its codes, remove it.

Users change only their own, with their password; super admins belong to no tenant, so these transactions must see all
rows. Every statement names the user's id. Codes, keys and recovery codes are never written to the audit log.
"""

import math
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from fairlead.actions.account import require_user
from fairlead.actions.passwords import check_password
from fairlead.actions.token_limits import require_grantable
from fairlead.db.tx import Tx
from fairlead.errors import (
    Fault,
    Forbidden,
    PasswordNotSet,
    PasswordWrong,
    SecondFactorExists,
    SecondFactorMissing,
    SecondFactorWrong,
    TooManyRequests,
    UserUnknown,
)
from fairlead.model.access import ACCESS_CHANGED, Permission, Principal, User
from fairlead.model.second_factor import (
    SecondFactor,
    SetupKey,
    find_step,
    generate_key,
    generate_recovery_codes,
    hash_recovery_code,
    is_totp_code,
    normalise_code,
    write_uri,
)
from fairlead.model.secrets.generated import hash_secret
from fairlead.store import access, accounts, allowances, audit, second_factors
from fairlead.store.allowances import RateBudget
from fairlead.store.sealing import seal, unseal
from fairlead.store.second_factors import StoredFactor

# Wrong codes of a user, from anywhere: three codes of a million are right, so a year of guesses finds one with 10 %.
WRONG_CODES = RateBudget(10, 900.0)


class CodeCheck(Enum):
    """What a code proves at the sign-in."""

    NOT_NEEDED = "not_needed"
    MISSING = "missing"
    WRONG = "wrong"
    PASSED = "passed"


class Confirmed(NamedTuple):
    """A second factor that is active now: its recovery codes, shown only once, and the number of ended sessions."""

    recovery_codes: list[str]
    sessions_ended: int


# At the sign-in


async def check_sign_in(tx: Tx, user_id: UUID, code: str | None) -> CodeCheck:
    """Check the code of a user whose password is right. A code that passes is used up, also if the sign-in fails later.

    TooManyRequests after too many wrong codes. The caller commits the transaction for a wrong code, too: it is counted.
    """
    factor = await second_factors.lock(tx, user_id)
    if factor is None or factor.confirmed_at is None:
        return CodeCheck.NOT_NEEDED
    if code is None or not (plain := normalise_code(code)):
        return CodeCheck.MISSING
    return CodeCheck.PASSED if await _use_code(tx, factor, plain) else CodeCheck.WRONG


async def _use_code(tx: Tx, factor: StoredFactor, code: str) -> bool:
    """Whether the code is right; then it is used up. A wrong code of an app is counted, while the row is locked.

    Recovery codes have too many bits to be guessed: they are accepted after too many wrong codes, too.
    """
    if not is_totp_code(code):
        hashed = hash_recovery_code(factor.user_id, code)
        return await second_factors.use_recovery_code(tx, factor.user_id, code_hash=hashed)
    step = await _find_counted_step(tx, factor, code)
    return step is not None and await second_factors.use_step(tx, factor.user_id, step=step)


async def _find_counted_step(tx: Tx, factor: StoredFactor, code: str) -> int | None:
    """The time step of a code; None, and counted, if the code is wrong. TooManyRequests after too many wrong ones."""
    key = f"failed:code:{factor.user_id}"
    if (wait := await allowances.seconds_until_unit(tx, key, WRONG_CODES)) > 0:
        raise _too_many_codes(wait)
    step = find_step(await _open_secret(tx, factor), code, now=factor.step, last=factor.last_step)
    if step is None:
        await allowances.take_units(tx, key, WRONG_CODES)
    return step


# One's own


async def get(tx: Tx, principal: Principal, *, required_roles: tuple[str, ...]) -> SecondFactor:
    """Whether the user who has signed in has a second factor, and needs one."""
    found = await second_factors.get(tx, require_user(principal))
    return SecondFactor(
        is_active=found is not None,
        confirmed_at=None if found is None else found.confirmed_at,
        recovery_codes_left=0 if found is None else found.recovery_codes_left,
        is_required=principal.role in required_roles,
    )


async def begin(tx: Tx, principal: Principal, *, password: str) -> SetupKey:
    """Begin the set-up: a new key, which replaces that of an unfinished set-up. Nothing changes until `confirm`.

    Slow on purpose; the caller limits failed attempts like those of a sign-in.
    """
    user_id = require_user(principal)
    await _require_password(tx, user_id, password)
    account = await accounts.get_account(tx, user_id)
    key = generate_key()
    tenant_id = None if account is None else account.tenant_id
    if account is None or not await second_factors.begin(
        tx, user_id, secret=await _seal_secret(tx, tenant_id, user_id, key)
    ):
        raise SecondFactorExists(
            "This account has a second factor. To replace it, remove it first: this needs the password and a code."
        )
    await _audit(tx, principal, user_id, "second_factor_setup_started", tenant_id=tenant_id)
    return SetupKey(key, write_uri(key, account.email))


async def confirm(tx: Tx, principal: Principal, *, code: str, session: str | None) -> Confirmed | None:
    """Activate the second factor of a set-up with its first code, and end all other sessions; None if the code is wrong.

    The caller commits for a wrong code, too: it is counted.
    """
    user_id = require_user(principal)
    factor = await second_factors.lock(tx, user_id)
    if factor is not None and factor.confirmed_at is not None:
        raise SecondFactorExists("The second factor is active already.")
    if factor is None or not factor.is_fresh:
        raise SecondFactorMissing("Begin the set-up first: it has not begun, or it took longer than an hour.")
    step = await _find_counted_step(tx, factor, normalise_code(code))
    if step is None:
        return None
    codes = generate_recovery_codes()
    hashes = [hash_recovery_code(user_id, one) for one in codes]
    await second_factors.confirm(tx, user_id, step=step, hashes=hashes)
    ended = await _end_others(tx, user_id, session)
    tenant_id = factor.tenant_id
    await _audit(tx, principal, user_id, "second_factor_enabled", tenant_id=tenant_id, sessions_ended=ended)
    return Confirmed(codes, ended)


async def renew_recovery_codes(tx: Tx, principal: Principal, *, password: str, code: str) -> list[str] | None:
    """Replace the recovery codes; None if the code is wrong. The caller then commits, too: it is counted."""
    factor = await _authorise(tx, principal, password, code)
    if factor is None:
        return None
    codes = generate_recovery_codes()
    hashes = [hash_recovery_code(factor.user_id, one) for one in codes]
    await second_factors.set_recovery_codes(tx, factor.user_id, hashes=hashes)
    await _audit(tx, principal, factor.user_id, "recovery_codes_renewed", tenant_id=factor.tenant_id)
    return codes


async def remove_own(
    tx: Tx, principal: Principal, *, password: str, code: str, session: str | None
) -> int | None:
    """Remove one's own second factor, and end all other sessions. Their number; None if the code is wrong.

    The caller commits for a wrong code, too: it is counted.
    """
    factor = await _authorise(tx, principal, password, code)
    if factor is None:
        return None
    await second_factors.remove(tx, factor.user_id)
    ended = await _end_others(tx, factor.user_id, session)
    user_id, tenant_id = factor.user_id, factor.tenant_id
    await _audit(tx, principal, user_id, "second_factor_removed", tenant_id=tenant_id, sessions_ended=ended)
    return ended


async def record_failure(tx: Tx, principal: Principal) -> None:
    """Audit a wrong password or code of a user who has signed in."""
    user_id = require_user(principal)
    account = await accounts.get_account(tx, user_id)
    tenant_id = None if account is None else account.tenant_id
    await _audit(tx, principal, user_id, "second_factor_change_failed", tenant_id=tenant_id)


async def _authorise(tx: Tx, principal: Principal, password: str, code: str) -> StoredFactor | None:
    """The user's second factor, if the password and the code are right; None if the code is wrong."""
    user_id = require_user(principal)
    await _require_password(tx, user_id, password)
    factor = await second_factors.lock(tx, user_id)
    if factor is None or factor.confirmed_at is None:
        raise SecondFactorMissing("This account has no second factor.")
    return factor if await _use_code(tx, factor, normalise_code(code)) else None


async def _require_password(tx: Tx, user_id: UUID, password: str) -> None:
    stored = await accounts.get_password_hash(tx, user_id)
    if stored is None:
        raise PasswordNotSet(
            "This account has no password, so it needs no second factor here: the identity provider asks for it.",
            [Fault("password", "the account has none")],
        )
    if not await check_password(stored, password):
        raise PasswordWrong("The password is wrong.", [Fault("password", "is wrong")])


async def _end_others(tx: Tx, user_id: UUID, session: str | None) -> int:
    await second_factors.touch_user(tx, user_id)
    ended = await accounts.end_other_sessions(tx, user_id, current=hash_secret(session or ""))
    tx.notify(ACCESS_CHANGED)
    return ended


# Those of others


async def remove(tx: Tx, principal: Principal, user_id: UUID) -> User:
    """Remove the second factor of another user, who has lost it, and end the user's sessions."""
    principal.require(Permission.MANAGE_USERS, principal.tenant_id)
    user = await access.get_user(tx, user_id, tenant_id=principal.tenant_id)
    if user is None:
        raise UserUnknown(f"There is no user {user_id}.", [Fault("id", "unknown")])
    if principal.user_id == user_id:
        raise Forbidden(
            "Remove your own second factor on your account page, with your password and a code. If you have lost it, ask "
            "another admin."
        )
    # a scoped token must not weaken the account of a user who may do more
    require_grantable(principal, user.role)
    if not await second_factors.remove(tx, user_id):
        raise SecondFactorMissing(f"{user.email} has no second factor.")
    await second_factors.touch_user(tx, user_id)
    await access.end_sessions_of(tx, user_id)
    tx.notify(ACCESS_CHANGED)
    await _audit(tx, principal, user_id, "second_factor_removed", tenant_id=user.tenant_id, email=user.email)
    changed = await access.get_user(tx, user_id, tenant_id=principal.tenant_id)
    return changed or user


# The sealed secret


async def _seal_secret(tx: Tx, tenant_id: UUID | None, user_id: UUID, key: str) -> str:
    return await seal(tx, tenant_id, second_factors.describe_secret(user_id), key)


async def _open_secret(tx: Tx, factor: StoredFactor) -> str:
    return await unseal(tx, factor.tenant_id, second_factors.describe_secret(factor.user_id), factor.secret)


def wrong_code_error() -> SecondFactorWrong:
    """The error for a wrong code, after the transaction that counted it."""
    return SecondFactorWrong(
        "The code is wrong, or was used before. Wait for the next code, and check the clock of your device.",
        [Fault("code", "is wrong, or was used before")],
    )


def _too_many_codes(wait: float) -> TooManyRequests:
    seconds = max(1, math.ceil(wait))
    error = TooManyRequests(
        f"Too many wrong codes. Try again in {seconds} s, or use a recovery code. If it was not you, change your password."
    )
    error.retry_after = seconds
    return error


async def _audit(
    tx: Tx, principal: Principal, user_id: UUID, action: str, *, tenant_id: UUID | None, **details: object
) -> None:
    await audit.write(
        tx,
        actor=principal.actor,
        action=action,
        resource_type="user",
        resource_id=user_id,
        tenant_id=tenant_id,
        details=details,
    )
