-- When the next job may start in a scope with a rate; null if it may now. It takes no lock, so a claim that follows may find
-- that another was faster.
create or replace function fairlead.rate_opens_at(
    scope text, scope_id uuid, other_id uuid, rate jsonb, moment timestamptz
) returns timestamptz language plpgsql stable as $$
declare
    -- microseconds between two tokens
    step constant float8 := (rate ->> 'per_seconds')::float8 * 1000000 / (rate ->> 'limit')::float8;
    opens timestamptz;
begin
    select b.full_at - make_interval(secs => floor(((rate ->> 'burst')::float8 - least(b.needed, (rate ->> 'burst')::float8)) * step) / 1000000) into opens
    from fairlead.rate_buckets b
    where b.scope = rate_opens_at.scope and b.scope_id = rate_opens_at.scope_id
        and b.other_id = coalesce(rate_opens_at.other_id, '00000000-0000-0000-0000-000000000000')
        and b.key = '00000000-0000-0000-0000-000000000000';
    return case when opens > moment then opens end;
end
$$;

revoke execute on function fairlead.rate_opens_at from public;
