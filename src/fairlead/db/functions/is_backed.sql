-- Whether the creator of a token may still grant its role: a disabled user grants none, nor one whom the identity provider
-- has sent elsewhere, and a user with a lesser role grants no more than that role. The system grants the role of a token that no user created.
create or replace function fairlead.is_backed(maker uuid, token_role text) returns boolean language sql stable as $$
    select maker is null or exists (
        select from fairlead.users u
        where u.id = maker and u.disabled_at is null
            and (u.left_at is null or u.password_hash is not null) and case u.role
            when 'super_admin' then true
            when 'tenant_admin' then token_role <> 'super_admin'
            when 'operator' then token_role in ('operator', 'viewer')
            else token_role = u.role end)
$$;

revoke execute on function fairlead.is_backed from public;
