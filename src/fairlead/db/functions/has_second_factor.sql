-- Whether a user has an active second factor. A set-up that was not confirmed is none.
create or replace function fairlead.has_second_factor(whose uuid) returns boolean language sql stable as $$
    select exists (select from fairlead.second_factors f where f.user_id = whose and f.confirmed_at is not null)
$$;

revoke execute on function fairlead.has_second_factor from public;
grant execute on function fairlead.has_second_factor to fairlead_tenant;
