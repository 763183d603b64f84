-- Whether a token is valid now, or why not. SECURITY DEFINER, since its creator may be a user that the session's tenant
-- does not see, such as a super admin: only the state is returned.
create or replace function fairlead.token_state(
    revoked_at timestamptz, expires_at timestamptz, maker uuid, token_role text
) returns text language sql stable security definer set search_path = '' as $$
    select case
        when revoked_at is not null then 'revoked'
        when expires_at <= clock_timestamp() then 'expired'
        when fairlead.is_backed(maker, token_role) then 'valid'
        when exists (select from fairlead.users u where u.id = maker and u.disabled_at is null) then 'maker_lacks_role'
        else 'maker_disabled' end
$$;

revoke execute on function fairlead.token_state from public;
grant execute on function fairlead.token_state to fairlead_tenant;
