-- How many tokens a bucket has at a moment; null without a rate.
create or replace function fairlead.tokens_in(full_at timestamptz, rate jsonb, moment timestamptz) returns integer
language sql immutable parallel safe as $$
    select least(2147483647, greatest(0, floor(
        (rate ->> 'burst')::float8
        - greatest(0, date_part('epoch', full_at - moment)) * (rate ->> 'limit')::float8 / (rate ->> 'per_seconds')::float8
        + 1e-9)))::integer
$$;
grant execute on function fairlead.tokens_in to fairlead_tenant;
