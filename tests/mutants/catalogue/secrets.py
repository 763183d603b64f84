"""Secrets: mutants that keep a value for too long, show one, or take a key away from those who still seal with it."""

from tests.mutants.catalogue.runs import SECRETS
from tests.mutants.mutant import Edit, Mutant

MUTANTS = (
    Mutant(
        name="secret_read_once",
        breaks=("I1",),
        wrong="A worker reads each secret to which jobs refer only once: later jobs get a value that was replaced.",
        file="handlers/secrets.py",
        old="            text: Any = read_secret(known.source, os.environ)\n",
        new="            text: Any = vars(self).setdefault(name, read_secret(known.source, os.environ))\n",
        catchers=(SECRETS,),
        findings=("secret_stale",),
    ),
    Mutant(
        name="resolved_secret_shown",
        breaks=("I14",),
        wrong="A worker masks the references of a payload, and not the secrets that take their places.",
        file="runtime/execution.py",
        old="            ctx.mask = build_mask(ctx.payload, job.secret_paths, self._redact_patterns)\n",
        new="            ctx.mask = build_mask(job.payload, job.secret_paths, self._redact_patterns)\n",
        catchers=(SECRETS,),
        findings=("secret_shown",),
    ),
    Mutant(
        name="key_retired_while_in_use",
        breaks=("I14",),
        wrong="A rotation retires a data key at once, while other processes still seal with it.",
        file="actions/encryption.py",
        old="    return key.is_waiting and (key.superseded_for or 0.0) >= 2 * CURRENT_SECONDS\n",
        new="    return key.is_waiting\n",
        more=(
            Edit(
                "actions/encryption.py",
                "    return max(0.0, *waits) if waits else 0.0\n",
                "    return 0.0 * len(waits)\n",
            ),
        ),
        catchers=(SECRETS,),
        findings=("sealed_with_retired_key",),
    ),
)
