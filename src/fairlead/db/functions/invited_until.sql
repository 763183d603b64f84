-- When the invitation of a user expires, or has expired; null if there is none, or it was accepted or withdrawn.
create or replace function fairlead.invited_until(invited uuid) returns timestamptz language sql stable as $$
    select l.expires_at from fairlead.account_links l
    where l.user_id = invited and l.purpose = 'invitation' and l.used_at is null and l.revoked_at is null
$$;

revoke execute on function fairlead.invited_until from public;
grant execute on function fairlead.invited_until to fairlead_tenant;
